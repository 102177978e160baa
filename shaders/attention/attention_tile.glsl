// The tiles of the attention kernels. A workgroup of 128 threads makes ROWS rows of a result in two kinds of product:
// scores, ROWS by COLUMNS, and sums of rows weighted by these scores. Factors go from global memory to registers and
// then through shared memory, in words of 16 bytes. The threads lie 16 across and 8 down: each has MINE rows, of which
// it makes 4 columns of the scores and 4 * RESULTS columns of the result. Needs no subgroups.
#include "attention/attention_scores.glsl"

layout(constant_id = 1) const uint RESULTS = 1;  //! 1 2 4

#define THREADS 128
#define ROWS TILE
#define COLUMNS ATTENTION_TILE_COLUMNS
#define MINE (ROWS / 8)
#define ROW_WORDS (ROWS / 4)  // four rows are a word of shared memory
#define MY_WORDS (MINE / 4)
#define COLUMN_WORDS (COLUMNS / 4)

// 32 KiB for 64 rows, 16 KiB for 32.
#if TILE == 64
#define DEPTH (PIECE * 4)  // columns of the head's dimension at a time
#define STAGE 1024
#else
#define DEPTH 16
#define STAGE 512
#endif
shared vec4 stage[STAGE];                  // the current factors
shared vec4 weights[COLUMNS * ROW_WORDS];  // scores as weights of rows

uint thread = gl_LocalInvocationID.x, my_row = thread / 16 * MINE, my_column = thread % 16 * 4;

// The words of a piece of a row: 16 bytes.
#ifdef T_F16
#define PIECE 8
#define LOAD_Q(e, to) load8_q(e, to[0], to[1]);
#define LOAD_K(e, to) load8_k(e, to[0], to[1]);
#define LOAD_V(e, to) load8_v(e, to[0], to[1]);
#define LOAD_DOUT(e, to) load8_dout(e, to[0], to[1]);
#else
#define PIECE 4
#define LOAD_Q(e, to) to[0] = load4_q(e);
#define LOAD_K(e, to) to[0] = load4_k(e);
#define LOAD_V(e, to) to[0] = load4_v(e);
#define LOAD_DOUT(e, to) to[0] = load4_dout(e);
#endif

#include "attention/attention_lines.glsl"

#define FOR_MINE(i) [[unroll]] for (uint i = 0; i < MINE; ++i)

// ---- c[i][j] = left[row + my_row + i] . right[column + my_column + j] ----------------------------
// Tasks of a thread are pieces of four rows, turned on their way to shared memory: words are four rows.
#define LEFT_TASKS (ROW_WORDS * DEPTH / PIECE)
#define ALL_TASKS (LEFT_TASKS + COLUMN_WORDS * DEPTH / PIECE)
#define TASKS ((ALL_TASKS + THREADS - 1) / THREADS)
#define RIGHT_STAGE (DEPTH * ROW_WORDS)

#define DEFINE_PRODUCTS(name, c, LOAD_LEFT, LOAD_RIGHT)                                             \
  void name(Rows left, uint row, Rows right, uint column) {                                         \
    FOR_MINE(i) c[i] = vec4(0.0);                                                                   \
    for (uint d = 0; d < DIM; d += DEPTH) {                                                         \
      vec4 piece[TASKS][4][PIECE / 4];                                                              \
      [[unroll]] for (uint u = 0; u < TASKS; ++u) {                                                 \
        const uint task = u * THREADS + thread, other = task - LEFT_TASKS;                          \
        if (task < LEFT_TASKS) {                                                                    \
          [[unroll]] for (uint r = 0; r < 4; ++r)                                                   \
            LOAD_LEFT(place(left, row + task % ROW_WORDS * 4 + r, d + task / ROW_WORDS * PIECE),    \
                      piece[u][r])                                                                  \
        } else {                                                                                    \
          [[unroll]] for (uint r = 0; r < 4; ++r)                                                   \
            LOAD_RIGHT(place(right, column + other % COLUMN_WORDS * 4 + r,                          \
                             d + other / COLUMN_WORDS * PIECE), piece[u][r])                        \
        }                                                                                           \
      }                                                                                             \
      barrier();                                                                                    \
      [[unroll]] for (uint u = 0; u < TASKS; ++u) {                                                 \
        const uint task = u * THREADS + thread, other = task - LEFT_TASKS;                          \
        const bool is_left = task < LEFT_TASKS;                                                     \
        const uint to = is_left ? task / ROW_WORDS * PIECE * ROW_WORDS + task % ROW_WORDS           \
                                : RIGHT_STAGE + other / COLUMN_WORDS * PIECE * COLUMN_WORDS +       \
                                      other % COLUMN_WORDS;                                         \
        const uint step = is_left ? ROW_WORDS : COLUMN_WORDS;                                       \
        if (task < ALL_TASKS)                                                                       \
          [[unroll]] for (uint e = 0; e < PIECE; ++e)                                               \
            stage[to + e * step] = vec4(piece[u][0][e / 4][e % 4], piece[u][1][e / 4][e % 4],       \
                                        piece[u][2][e / 4][e % 4], piece[u][3][e / 4][e % 4]);      \
      }                                                                                             \
      barrier();                                                                                    \
      const uint depth = min(DEPTH, DIM - d);                                                       \
      for (uint k = 0; k < depth; k += 8) {                                                         \
        [[unroll]] for (uint u = 0; u < 8; ++u) {                                                   \
          const vec4 b = stage[RIGHT_STAGE + (k + u) * COLUMN_WORDS + my_column / 4];               \
          [[unroll]] for (uint q = 0; q < MY_WORDS; ++q) {                                          \
            const vec4 a = stage[(k + u) * ROW_WORDS + my_row / 4 + q];                             \
            [[unroll]] for (uint i = 0; i < 4; ++i) c[q * 4 + i] += a[i] * b;                       \
          }                                                                                         \
        }                                                                                           \
      }                                                                                             \
    }                                                                                               \
  }

// ---- acc[i] += sum over columns j of weights[j][my_row + i] * rows[row + j] ------------------------
// Of `count` columns; those after them must have the weight 0. Each slice of rows as large as the stage.
#define SLICE (STAGE / (RESULTS * 16))
#define SLICE_PIECES (STAGE * 4 / PIECE / THREADS)

// Returns the place of four rows of a column: columns that are 4 apart lie in different banks.
uint weight_place(uint column, uint row_word) {
  return column * ROW_WORDS + (row_word ^ (column / 4 % ROW_WORDS));
}

// The result may be read after the next barrier; the last readers must be behind one.
#define DEFINE_PUT_WEIGHTS(name, c)                                                        \
  void name() {                                                                            \
    [[unroll]] for (uint j = 0; j < 4; ++j)                                                \
      [[unroll]] for (uint q = 0; q < MY_WORDS; ++q)                                       \
        weights[weight_place(my_column + j, my_row / 4 + q)] =                             \
            vec4(c[q * 4][j], c[q * 4 + 1][j], c[q * 4 + 2][j], c[q * 4 + 3][j]);          \
  }

#define DEFINE_ACCUMULATE(name, acc, LOAD_ROW)                                                     \
  void name(Rows rows, uint row, uint count, uint column) {                                        \
    for (uint first = 0; first < min(count, COLUMNS); first += SLICE) {                            \
      vec4 piece[SLICE_PIECES][PIECE / 4];                                                         \
      [[unroll]] for (uint u = 0; u < SLICE_PIECES; ++u) {                                         \
        const uint n = (u * THREADS + thread) * PIECE;                                             \
        LOAD_ROW(place(rows, row + first + n / (RESULTS * 64), column + n % (RESULTS * 64)),       \
                 piece[u])                                                                         \
      }                                                                                            \
      barrier();                                                                                   \
      [[unroll]] for (uint u = 0; u < SLICE_PIECES; ++u)                                           \
        [[unroll]] for (uint v = 0; v < PIECE / 4; ++v)                                            \
          stage[(u * THREADS + thread) * (PIECE / 4) + v] = piece[u][v];                           \
      barrier();                                                                                   \
      for (uint k = 0; k < SLICE; k += 8) {                                                        \
        [[unroll]] for (uint u = 0; u < 8; ++u) {                                                  \
          vec4 b[RESULTS];                                                                         \
          FOR_RESULTS(r) b[r] = stage[((k + u) * RESULTS + r) * 16 + my_column / 4];               \
          [[unroll]] for (uint q = 0; q < MY_WORDS; ++q) {                                         \
            const vec4 a = weights[weight_place(first + k + u, my_row / 4 + q)];                   \
            [[unroll]] for (uint i = 0; i < 4; ++i) FOR_RESULTS(r) acc[q * 4 + i][r] += a[i] * b[r]; \
          }                                                                                        \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }

#define CLEAR(acc) FOR_MINE(i) FOR_RESULTS(r) acc[i][r] = vec4(0.0);

// The columns of the result: this thread's word r begins at result_column(w, r).
uint result_column(Work w, uint r) { return w.column + r * 64 + my_column; }

// Returns x / keep or 0, by a bit that says whether the weight is kept.
float drop(float x, uint kept, uint bit) { return (kept >> bit & 1) != 0 ? x / p.keep : 0.0; }
