// The tiles of the attention kernels of GPUs with cooperative matrices (attention_tile.glsl has those of the others). A
// workgroup of 8 subgroups makes ROWS rows of a result. Of the scores, and of each 64 columns of the result, every
// subgroup makes one of 2 x 4 blocks. Factors go to shared memory in words as they come, but for the rows that are
// weighted: they are turned, since factors whose terms lie apart are loaded element by element on AMD. The places of a
// matrix's elements in registers are unknown, so scores go to shared memory, too, where threads take their part of
// them, and come back as a factor: the weights.
#include "attention/attention_scores.glsl"
#include "common/cooperative.glsl"

layout(constant_id = 1) const uint RESULTS = 1;      //! 1 2 3 4
layout(constant_id = 2) const uint BLOCK_ROWS = 16;  //! 16 32

#define THREADS (8 * SUBGROUP_SIZE)
#define ROWS (2 * BLOCK_ROWS)
#define COLUMNS ATTENTION_TILE_COLUMNS
#define PIECE 8  // elements in a word of 16 bytes
#include "attention/attention_lines.glsl"

#define BLOCK_COLUMNS 16
#define DOWN (BLOCK_ROWS / MATRIX_M)  // matrices in a block
#define ACROSS (BLOCK_COLUMNS / MATRIX_N)
#define MATRICES (DOWN * ACROSS)
#define DEPTH 64  // columns of the head's dimension at a time
// The words from line to line; one more than needed spreads the lines over the banks.
#define STRIDE (DEPTH / 8 + 1)
#define SUMS_STRIDE (COLUMNS / 4 + 1)

// The factors of the scores; then the scores, ROWS lines of SUMS_STRIDE words; then the weights.
shared uvec4 panels[(ROWS + COLUMNS) * STRIDE];
shared uvec4 weighted[COLUMNS * STRIDE];  // 64 columns of the rows that are weighted: [column][row]

uint thread = gl_LocalInvocationID.x, block_row = gl_SubgroupID / 4 * BLOCK_ROWS,
     block_column = gl_SubgroupID % 4 * BLOCK_COLUMNS;

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

// Loads and puts `lines` lines of a factor of the scores, from column d on.
#define FILL_PANEL(first, lines, WORD, rows, row)                                          \
  [[unroll]] for (uint n = 0; n < (lines) * DEPTH / 8 / THREADS; ++n) {                    \
    const uint i = n * THREADS + thread, line = i / (DEPTH / 8), piece = i % (DEPTH / 8);  \
    const uvec4 word = WORD(place(rows, (row) + line, d + piece * 8));                     \
    panels[((first) + line) * STRIDE + piece] = d + piece * 8 < DIM ? word : uvec4(0);     \
  }

// Computes the sums [row i][column j] = left[row + i] . right[column + j] in panels, which no thread may still use. They
// may be read after the next barrier.
#define DEFINE_PRODUCTS(name, LEFT_WORD, RIGHT_WORD)                                                  \
  void name(Rows left, uint row, Rows right, uint column) {                                           \
    SumMatrix c[MATRICES];                                                                            \
    FOR_MATRICES(m) c[m] = SumMatrix(0.0);                                                            \
    for (uint d = 0; d < DIM; d += DEPTH) {                                                           \
      barrier();                                                                                      \
      FILL_PANEL(0, ROWS, LEFT_WORD, left, row)                                                       \
      FILL_PANEL(ROWS, COLUMNS, RIGHT_WORD, right, column)                                            \
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
    barrier();                                                                                        \
    FOR_MATRICES(m) store_rows(c[m], panels, matrix_place(m, SUMS_STRIDE, 4), SUMS_STRIDE);           \
  }

// Adds to acc[i] the sum over columns j of weights[i][j] * rows[row + j], with the weights in panels from `weights` on,
// for `count` columns; columns after those must have the weight 0.
#define DEFINE_ACCUMULATE(name, acc, weights, WORD)                                                   \
  void name(Rows rows, uint row, uint count) {                                                        \
    FOR_RESULTS(r) {                                                                                  \
      barrier();                                                                                      \
      [[unroll]] for (uint n = 0; n < COLUMNS / 2 * 8 / THREADS; ++n) {                               \
        const uint i = n * THREADS + thread, two = i % (COLUMNS / 2), piece = i / (COLUMNS / 2);      \
        const uvec4 x = WORD(place(rows, row + 2 * two, r * 64 + piece * 8));                         \
        const uvec4 y = WORD(place(rows, row + 2 * two + 1, r * 64 + piece * 8));                     \
        [[unroll]] for (uint e = 0; e < 4; ++e) {                                                     \
          const uint to = (piece * 8 + 2 * e) * STRIDE + two / 4;                                     \
          weighted[to][two % 4] = x[e] & 0xffff | y[e] << 16;                                         \
          weighted[to + STRIDE][two % 4] = x[e] >> 16 | y[e] & 0xffff0000u;                           \
        }                                                                                             \
      }                                                                                               \
      barrier();                                                                                      \
      for (uint k = 0; k < min(count, COLUMNS); k += MATRIX_K) {                                      \
        RightMatrix b[ACROSS];                                                                        \
        [[unroll]] for (uint j = 0; j < ACROSS; ++j)                                                  \
          load_columns(b[j], weighted, (block_column + j * MATRIX_N) * STRIDE + k / 8, STRIDE);       \
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

// Moves the r-th 64 columns of the result to panels, where all threads may read them at once.
#define PUT_RESULTS(acc, r)                                                                                  \
  barrier();                                                                                                 \
  FOR_MATRICES(m) store_rows(acc[(r) * MATRICES + m], panels, matrix_place(m, SUMS_STRIDE, 4), SUMS_STRIDE); \
  barrier();

// This thread's row of a tile, and which of its pieces of 8 columns it has: the first, and every ROW_THREADS-th after
// it.
#define ROW_THREADS (THREADS / ROWS)
#define PIECES (COLUMNS / 8 / ROW_THREADS)
uint my_row = thread / ROW_THREADS, my_piece = thread % ROW_THREADS;
#define FOR_MY_PIECES(n, c) \
  [[unroll]] for (uint n = 0, c = my_piece; n < PIECES; ++n, c += ROW_THREADS)
#define sum_of(row, word) uintBitsToFloat(panels[(row) * SUMS_STRIDE + (word)])

// Returns x / keep or 0, by a bit that says whether the weight is kept.
float drop(float x, uint kept, uint bit) { return (kept >> bit & 1) != 0 ? x / p.keep : 0.0; }
