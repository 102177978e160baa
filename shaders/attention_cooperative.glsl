// The tiles of the attention kernels of GPUs with cooperative matrices (attention_tile.glsl has those of the others). A
// workgroup of 8 subgroups makes ROWS rows of a result. Of the scores, and of each 64 columns of the result, every
// subgroup makes one of 2 x 4 blocks. Factors go to shared memory in words as they come. The places of a matrix's
// elements in registers are unknown, so scores go to shared memory, too, where THREADS / ROWS threads each have a row
// of them, and come back as a factor: the weights.
#include "attention_scores.glsl"
#include "cooperative.glsl"

layout(constant_id = 1) const uint RESULTS = 1;  //! 1 2 3 4

#define THREADS (8 * SUBGROUP_SIZE)
#define ROWS 32
#define COLUMNS ATTENTION_TILE_COLUMNS
#define PIECE 8  // elements in a word of 16 bytes
#include "attention_lines.glsl"

#define BLOCK 16
#define DOWN (BLOCK / MATRIX_M)  // matrices in a block
#define ACROSS (BLOCK / MATRIX_N)
#define MATRICES (DOWN * ACROSS)
#define DEPTH 64  // columns of the head's dimension at a time
// The words from line to line; one more than needed spreads the lines over the banks.
#define STRIDE (DEPTH / 8 + 1)
#define SUMS_STRIDE (COLUMNS / 4 + 1)
#define SUMS (ROWS * SUMS_STRIDE)  // in words

shared uvec4 panels[(ROWS + COLUMNS) * STRIDE];  // the factors of the scores; then the weights
// SUMS_TILES tiles of scores; then the rows that they weight.
shared uvec4 sums[SUMS_TILES == 1 ? COLUMNS * STRIDE : SUMS_TILES * SUMS];

uint thread = gl_LocalInvocationID.x, block_row = gl_SubgroupID / 4 * BLOCK, block_column = gl_SubgroupID % 4 * BLOCK;

#define WORD_Q(e) q_uvec4[(p.offset[0] + (e)) >> 3]
#define WORD_K(e) k_uvec4[(p.offset[1] + (e)) >> 3]
#define WORD_V(e) v_uvec4[(p.offset[2] + (e)) >> 3]
#define WORD_DOUT(e) dout_uvec4[(p.offset[3] + (e)) >> 3]

// Converts to the factors' 16-bit type, to nearest; packHalf2x16 need not round so.
uint pack_factors(vec2 v) {
  return BRAIN ? brain_bits(v.x) | brain_bits(v.y) << 16 : packFloat2x16(f16vec2(v));
}

#define FOR_MATRICES(m) [[unroll]] for (uint m = 0; m < MATRICES; ++m)
// Returns the place of matrix m of the block in lines of `stride` words of `per_word` elements.
#define matrix_place(m, stride, per_word) \
  ((block_row + (m) / ACROSS * MATRIX_M) * (stride) + (block_column + (m) % ACROSS * MATRIX_N) / (per_word))

// Computes sums[to + row i][column j] = left[row + i] . right[column + j]. No thread may still read sums; the result
// may be read after the next barrier.
#define DEFINE_PRODUCTS(name, to, LEFT_WORD, RIGHT_WORD)                                              \
  void name(Rows left, uint row, Rows right, uint column) {                                           \
    SumMatrix c[MATRICES];                                                                            \
    FOR_MATRICES(m) c[m] = SumMatrix(0.0);                                                            \
    for (uint d = 0; d < DIM; d += DEPTH) {                                                           \
      barrier();                                                                                      \
      for (uint i = thread; i < (ROWS + COLUMNS) * DEPTH / 8; i += THREADS) {                         \
        const uint line = i / (DEPTH / 8), piece = i % (DEPTH / 8), e = d + piece * 8;                \
        uvec4 word = uvec4(0);                                                                        \
        if (e < DIM) {                                                                                \
          if (line < ROWS)                                                                            \
            word = LEFT_WORD(place(left, row + line, e));                                             \
          else                                                                                        \
            word = RIGHT_WORD(place(right, column + line - ROWS, e));                                 \
        }                                                                                             \
        panels[line * STRIDE + piece] = word;                                                         \
      }                                                                                               \
      barrier();                                                                                      \
      for (uint k = 0; k < min(DEPTH, DIM - d); k += MATRIX_K) {                                      \
        RightMatrix b[ACROSS];                                                                        \
        [[unroll]] for (uint j = 0; j < ACROSS; ++j)                                                  \
          load_columns(b[j], panels, (ROWS + block_column + j * MATRIX_N) * STRIDE + k / 8, STRIDE);  \
        [[unroll]] for (uint i = 0; i < DOWN; ++i) {                                                  \
          LeftMatrix a;                                                                               \
          load_rows(a, panels, (block_row + i * MATRIX_M) * STRIDE + k / 8, STRIDE);                  \
          [[unroll]] for (uint j = 0; j < ACROSS; ++j)                                                \
            c[i * ACROSS + j] = multiply_add(a, b[j], c[i * ACROSS + j]);                             \
        }                                                                                             \
      }                                                                                               \
    }                                                                                                 \
    FOR_MATRICES(m) store_rows(c[m], sums, (to) + matrix_place(m, SUMS_STRIDE, 4), SUMS_STRIDE);      \
  }

// Adds to acc[i] the sum over columns j of weights[i][j] * rows[row + j], with the weights in panels from `weights` on,
// for `count` columns; columns after those must have the weight 0. Overwrites sums.
#define DEFINE_ACCUMULATE(name, acc, weights, WORD)                                                   \
  void name(Rows rows, uint row, uint count) {                                                        \
    FOR_RESULTS(r) {                                                                                  \
      barrier();                                                                                      \
      for (uint i = thread; i < COLUMNS * 8; i += THREADS)                                            \
        sums[i / 8 * STRIDE + i % 8] = WORD(place(rows, row + i / 8, r * 64 + i % 8 * 8));            \
      barrier();                                                                                      \
      for (uint k = 0; k < min(count, COLUMNS); k += MATRIX_K) {                                      \
        RightMatrix b[ACROSS];                                                                        \
        [[unroll]] for (uint j = 0; j < ACROSS; ++j)                                                  \
          load_rows(b[j], sums, k * STRIDE + (block_column + j * MATRIX_N) / 8, STRIDE);              \
        [[unroll]] for (uint i = 0; i < DOWN; ++i) {                                                  \
          LeftMatrix a;                                                                               \
          load_rows(a, panels, (weights) + (block_row + i * MATRIX_M) * STRIDE + k / 8, STRIDE);      \
          [[unroll]] for (uint j = 0; j < ACROSS; ++j) {                                              \
            const uint m = r * MATRICES + i * ACROSS + j;                                             \
            acc[m] = multiply_add(a, b[j], acc[m]);                                                   \
          }                                                                                           \
        }                                                                                             \
      }                                                                                               \
    }                                                                                                 \
  }

#define CLEAR(acc) [[unroll]] for (uint m = 0; m < RESULTS * MATRICES; ++m) acc[m] = SumMatrix(0.0);

// Moves the r-th 64 columns of the result to sums. All threads may have read sums before and may read them at once.
#define PUT_RESULTS(acc, r)                                                                           \
  barrier();                                                                                          \
  FOR_MATRICES(m) store_rows(acc[(r) * MATRICES + m], sums, matrix_place(m, SUMS_STRIDE, 4), SUMS_STRIDE); \
  barrier();

// This thread's row of a tile, and which of its pieces of 8 columns it has: the first, and every THREADS / ROWS-th
// after it.
uint my_row = thread / (THREADS / ROWS), my_piece = thread % (THREADS / ROWS);
#define FOR_MY_PIECES(c) for (uint c = my_piece; c < COLUMNS / 8; c += THREADS / ROWS)
#define sum_of(tile, row, word) uintBitsToFloat(sums[(tile) * SUMS + (row) * SUMS_STRIDE + (word)])

// Returns x / keep or 0, by a bit that says whether the weight is kept.
float drop(float x, uint kept, uint bit) { return (kept >> bit & 1) != 0 ? x / p.keep : 0.0; }
