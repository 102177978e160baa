// A TILE x TILE tile of a matrix product on a GPU, by THREADS threads: the loop of gemm_tiled, conv_tiled
// and conv_wgrad_tiled. TILE_K values of k at a time make two panels, the left [TILE rows, TILE_K] and the
// right [TILE_K, TILE columns], which lie in shared memory; the next ones wait in registers while they are
// multiplied. Elements come in words of 16 bytes: WORD neighbours in k, or in the line (row or column).
//
// A kernel says where its panels lie and what becomes of the tile:
//   LEFT_ALONG_K, RIGHT_ALONG_K   whether a word's elements are neighbours in k
//   void at_panel(uint k)         called first for the panels that begin at k, which come in order
//   LEFT_WHOLE, RIGHT_WHOLE       whether whole words are loaded, or their elements one by one; with LOOSE_WORDS (of
//                                 16-bit elements) the two words of the buffer in which they lie
//   void left_word(uint w, uint line, uint k, out Word word)   loads word w of this thread, which begins
//   void right_word(...)          there in the panel; from any place when it is outside the matrix
//   void store_part(uint row, uint column, vec4 v)   four columns of a row of the tile: the epilogue
//   vec4 finish_part(...)                            with FINISHES, is called first, for many parts: their loads go out
//                                                    together and wait for no store
// and then calls make_tile(begin, end).
//
// The ways to multiply, plain arithmetic (tile_shared.glsl) and cooperative matrices (tile_cooperative.glsl), have
//   void clear_tile(), put_left(uint w, uvec4 word), put_right(...), turn_panels(), multiply_panels(), store_tile()
#ifdef KHR_MATRICES
#define THREADS (MATRIX_SUBGROUPS * SUBGROUP_SIZE)
#define TILE_K 32
#else
#define THREADS (2 * TILE)
#define TILE_K 16
#endif
#if T_F16
#define WORD 8
#else
#define WORD 4
#endif
#define WORDS (TILE * TILE_K / WORD / THREADS)  // of a panel, per thread

#define thread gl_LocalInvocationID.x

// WORD elements of a panel on their way from memory. Nothing that waits for them may use them before arrived().
struct Word {
  uvec4 whole;
#ifdef LOOSE_WORDS
  uvec4 more;  // the next word of the buffer; the elements begin `shift` elements after the begin of `whole`
  uint shift;
#else
  uint element[WORD];  // their bits, as bits_NAME returns them, if they are loaded one by one
#endif
  bool is_inside;  // the whole word counts; if not, zeros do
  uint inside;     // one bit for each element
};

void at_panel(uint k);
void left_word(uint w, uint line, uint k, out Word word);
void right_word(uint w, uint line, uint k, out Word word);
#ifdef FINISHES
vec4 finish_part(uint row, uint column, vec4 v);
#else
vec4 finish_part(uint row, uint column, vec4 v) { return v; }
#endif
void store_part(uint row, uint column, vec4 v);

// Returns the line and the k, in its panel, at which word w of this thread begins. Neighbours in a subgroup have
// neighbours in memory. THREADS are a multiple of both widths, so compilers see that words lie in even steps.
uvec2 word_place(uint w, bool along_k) {
  const uint width = along_k ? TILE_K / WORD : TILE / WORD, across = thread % width * WORD,
             down = thread / width + w * (THREADS / width);
  return along_k ? uvec2(down, across) : uvec2(across, down);
}

#if T_F16
#define word_of(array, e) array[(e) >> 3]  // the word that contains element e of a buffer
uvec4 pack_word(uint e[WORD]) {
  return uvec4(e[0], e[2], e[4], e[6]) | uvec4(e[1], e[3], e[5], e[7]) << 16;
}
// Returns the elements from number `shift` on of two words.
uvec4 shift_words(uvec4 lo, uvec4 hi, uint shift) {
  if ((shift & 4) != 0) lo = uvec4(lo.zw, hi.xy), hi.xy = hi.zw;
  if ((shift & 2) != 0) lo = uvec4(lo.yzw, hi.x), hi.x = hi.y;
  return (shift & 1) != 0 ? lo >> 16 | uvec4(lo.yzw, hi.x) << 16 : lo;
}
uvec4 mask_of(uint inside) {
  const uvec4 pairs = uvec4(inside) >> uvec4(0, 2, 4, 6);
  return 0u - (pairs & 1u) & 0xffffu | 0u - (pairs >> 1 & 1u) << 16;
}
void unpack_word(uvec4 word, out float v[WORD]) {
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const vec2 pair = unpack_pair(word[i]);
    v[2 * i] = pair.x;
    v[2 * i + 1] = pair.y;
  }
}
#else
#define word_of(array, e) array[(e) >> 2]
uvec4 pack_word(uint e[WORD]) { return uvec4(e[0], e[1], e[2], e[3]); }
void unpack_word(uvec4 word, out float v[WORD]) {
  [[unroll]] for (uint i = 0; i < WORD; ++i) v[i] = uintBitsToFloat(word[i]);
}
#endif

uvec4 arrived(Word word, bool is_whole) {
  if (is_whole) return word.is_inside ? word.whole : uvec4(0);
#ifdef LOOSE_WORDS
  return shift_words(word.whole, word.more, word.shift) & mask_of(word.inside);
#else
  [[unroll]] for (uint i = 0; i < WORD; ++i)
    word.element[i] = (word.inside & 1u << i) != 0 ? word.element[i] : 0;
  return pack_word(word.element);
#endif
}

#ifdef KHR_MATRICES
#include "matrix/tile_cooperative.glsl"
#else
#include "matrix/tile_shared.glsl"
#endif

Word left_next[WORDS], right_next[WORDS];

void fetch_panels(uint k) {
  at_panel(k);
  [[unroll]] for (uint w = 0; w < WORDS; ++w) {
    const uvec2 at = word_place(w, LEFT_ALONG_K);
    left_word(w, at.x, at.y, left_next[w]);
  }
  [[unroll]] for (uint w = 0; w < WORDS; ++w) {
    const uvec2 at = word_place(w, RIGHT_ALONG_K);
    right_word(w, at.x, at.y, right_next[w]);
  }
}

// Moves the words that wait in registers to the place of the next panels.
void put_panels() {
  [[unroll]] for (uint w = 0; w < WORDS; ++w) put_left(w, arrived(left_next[w], LEFT_WHOLE));
  [[unroll]] for (uint w = 0; w < WORDS; ++w) put_right(w, arrived(right_next[w], RIGHT_WHOLE));
}

// Stores the sums over k of `begin` to `end`. All threads must call it.
void make_tile(uint begin, uint end) {
  clear_tile();
  if (begin < end) {
    fetch_panels(begin);
    put_panels();
    turn_panels();
  }
  for (uint k = begin; k < end; k += TILE_K) {
    barrier();
    const bool has_next = k + TILE_K < end;
    if (has_next) fetch_panels(k + TILE_K);
    if (PUTS_FIRST && has_next) put_panels();
    multiply_panels();
#if !TWO_PAIRS  // the next panels take the place of these
    barrier();
#endif
    if (!PUTS_FIRST && has_next) put_panels();
    turn_panels();
  }
#if TWO_PAIRS
  barrier();
#endif
  store_tile();
}
