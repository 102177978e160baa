// gemm_tiled and gemm_chain_tiled read their factors by these functions. An includer has LEFT_ALONG_K, RIGHT_ALONG_K,
// WORDS_IN and the sizes and strides of GemmParams.
#define LEFT_WHOLE WORDS_IN
#define RIGHT_WHOLE WORDS_IN
#if T_F16
#define LOOSE_WORDS  // neighbours lie side by side, wherever they begin; elements of 4 bytes alone are as good
#endif
#include "matrix/tile.glsl"

uint m0, n0, k0, a0, b0, end;

// Lines and k past the edge repeat the last ones. Only zeros past k, and the elements that are stored, matter.
uint a_line(uint m) { return a0 + min(m, p.m - 1) * (LEFT_ALONG_K ? p.a_row : 1); }
uint b_line(uint n) { return b0 + min(n, p.n - 1) * (RIGHT_ALONG_K ? p.b_col : 1); }
uint a_depth(uint k) { return min(k, end - 1) * (LEFT_ALONG_K ? 1 : p.a_col); }
uint b_depth(uint k) { return min(k, end - 1) * (RIGHT_ALONG_K ? 1 : p.b_row); }
uint a_at(uint m, uint k) { return a_line(m) + a_depth(k); }
uint b_at(uint n, uint k) { return b_line(n) + b_depth(k); }

// Returns a bit for each element of a word that begins at k.
uint inside_k(uint k, bool along_k) {
  const uint all = (1u << WORD) - 1u;
  return k >= end ? 0 : along_k ? all >> (WORD - min(end - k, WORD)) : all;
}

// Where the lines of this thread's words begin.
uint left_line[WORDS], right_line[WORDS];

void make_product(uint begin) {
  [[unroll]] for (uint w = 0; w < WORDS; ++w) {
    left_line[w] = p.offset[0] + a_line(m0 + word_place(w, LEFT_ALONG_K).x);
    right_line[w] = p.offset[1] + b_line(n0 + word_place(w, RIGHT_ALONG_K).x);
  }
  make_tile(begin, end);
}

void at_panel(uint k) { k0 = k; }

void left_word(uint w, uint line, uint k, out Word word) {
  const uint e = left_line[w] + a_depth(k0 + k);
  word.whole = word_of(a_uvec4, e);
  word.is_inside = k0 + k < end;
  if (WORDS_IN) return;
  word.inside = inside_k(k0 + k, LEFT_ALONG_K);
#ifdef LOOSE_WORDS
  word.more = word_of(a_uvec4, min(e + WORD, p.offset[0] + a_at(p.m - 1, end - 1)));  // at most the last word of a
  word.shift = e % WORD;
#else
  [[unroll]] for (uint i = 0; i < WORD; ++i)
    word.element[i] = LEFT_ALONG_K ? bits_a(a_at(m0 + line, k0 + k + i)) : bits_a(a_at(m0 + line + i, k0 + k));
#endif
}

void right_word(uint w, uint line, uint k, out Word word) {
  const uint e = right_line[w] + b_depth(k0 + k);
  word.whole = word_of(b_uvec4, e);
  word.is_inside = k0 + k < end;
  if (WORDS_IN) return;
  word.inside = inside_k(k0 + k, RIGHT_ALONG_K);
#ifdef LOOSE_WORDS
  word.more = word_of(b_uvec4, min(e + WORD, p.offset[1] + b_at(p.n - 1, end - 1)));
  word.shift = e % WORD;
#else
  [[unroll]] for (uint i = 0; i < WORD; ++i)
    word.element[i] = RIGHT_ALONG_K ? bits_b(b_at(n0 + line, k0 + k + i)) : bits_b(b_at(n0 + line + i, k0 + k));
#endif
}
