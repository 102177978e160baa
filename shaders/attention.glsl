// The tiles of the attention kernels. One subgroup makes ROWS rows of a result without shared memory or
// barriers, in two kinds of product: its lanes lie across the columns of the scores and each takes four
// (columns are keys, in attention_dkv queries); then they lie across the head's dimension and each
// takes WIDTH, while the scores go from lane to lane by subgroupShuffle. Loads are words of 64 bits.
#include "attention_scores.glsl"

layout(constant_id = 1) const uint ROWS = 16;  //! 4 16
layout(constant_id = 2) const uint WIDTH = 8;  //! 4 8

#define LANES SUBGROUP_SIZE
#define TILE_COLUMNS (LANES * ATTENTION_PER_LANE)
#define WORDS (WIDTH / 4)

// CPU drivers gather one 64-bit word faster than two of 32.
#ifdef HAS_INT64
#define Word uint64_t
uvec2 halves_of(uint64_t word) { return unpackUint2x32(word); }
#else
#define Word uvec2
uvec2 halves_of(uvec2 word) { return word; }
#endif
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Words64 { Word data[]; };

uint lane = gl_SubgroupInvocationID;

// Rows of a matrix in a buffer: row i begins at element `first` + min(i, last) * step.
struct Rows {
  Words64 data;
  uint first, step, last;
};

vec4 load4(Rows rows, uint row, uint column) {
  const uint e = rows.first + min(row, rows.last) * rows.step + column;
#ifdef T_F16
  return unpack_halves(halves_of(rows.data.data[e / 4]));
#else
  return uintBitsToFloat(
      uvec4(halves_of(rows.data.data[e / 2]), halves_of(rows.data.data[e / 2 + 1])));
#endif
}

// Of a result of `heads` heads.
Work find_work(uint rows, uint heads) {
  const uint row_tiles = (rows + ROWS - 1) / ROWS;
  const uint column_tiles = (DIM + LANES * WIDTH - 1) / (LANES * WIDTH);
  const uint tile = group_id() * gl_NumSubgroups + gl_SubgroupID;
  const uint z = tile / row_tiles, head = z / column_tiles;
  return Work(head / heads, head % heads, tile % row_tiles * ROWS,
              z % column_tiles * LANES * WIDTH + lane * WIDTH, head < p.batch * heads);
}

// Queries (keys) of dense [batch, count, heads, dim] at `data`.
Rows dense_rows(Work w, Words64 data, uint offset, uint count) {
  return Rows(data, offset + (w.batch * count * p.heads + w.head) * DIM, p.heads * DIM, count - 1);
}

Rows query_rows(Work w) {
  return Rows(Words64(address_table[0]), p.offset[0] + at(w, p.q_stride), p.q_stride[2], p.queries - 1);
}
// Of the `count` keys that count: what others hold never meets a weight of 0.
Rows key_rows(Work w, uint count) {
  return Rows(Words64(address_table[1]), p.offset[1] + shared_at(w, p.k_stride), p.k_stride[2], max(count, 1) - 1);
}
Rows value_rows(Work w, uint count) {
  return Rows(Words64(address_table[2]), p.offset[2] + shared_at(w, p.v_stride), p.v_stride[2], max(count, 1) - 1);
}

// c[i][j] = left[row + i] . right[column + j] for this lane's four columns.
#define DEFINE_PRODUCTS(name, c)                                                              \
  void name(Rows left, uint row, Rows right, uint column) {                                   \
    [[unroll]] for (uint i = 0; i < ROWS; ++i) c[i] = vec4(0.0);                              \
    for (uint d = 0; d < DIM; d += LANES * 4) {                                             \
      vec4 a[ROWS];                                                                           \
      [[unroll]] for (uint i = 0; i < ROWS; ++i)                                              \
        a[i] = load4(left, row + i, min(d + lane * 4, DIM - 4));                            \
      const uint words = min(LANES, (DIM - d) / 4);                                         \
      for (uint l = 0; l < words; ++l) {                                                      \
        vec4 b[4];                                                                            \
        [[unroll]] for (uint j = 0; j < 4; ++j) b[j] = load4(right, column + j, d + l * 4);    \
        [[unroll]] for (uint i = 0; i < ROWS; ++i)                                            \
          [[unroll]] for (uint q = 0; q < 4; ++q)                                             \
            c[i] += subgroupShuffle(a[i][q], l) * vec4(b[0][q], b[1][q], b[2][q], b[3][q]);   \
      }                                                                                       \
    }                                                                                         \
  }

// acc[i] += sum over `count` columns j of c[i][j] * rows[row + j], at this lane's columns from `column` on.
#define DEFINE_ACCUMULATE(name, acc, c)                                                       \
  void name(Rows rows, uint row, uint count, uint column) {                                   \
    const uint words = min(LANES, (count + 3) / 4), inside = min(column, DIM - WIDTH);      \
    for (uint l = 0; l < words; ++l) {                                                        \
      [[unroll]] for (uint u = 0; u < 4; ++u) {                                               \
        vec4 b[WORDS];                                                                        \
        [[unroll]] for (uint v = 0; v < WORDS; ++v)                                           \
          b[v] = load4(rows, row + l * 4 + u, inside + v * 4);                                \
        [[unroll]] for (uint i = 0; i < ROWS; ++i) {                                          \
          const float x = subgroupShuffle(c[i][u], l);                                        \
          [[unroll]] for (uint v = 0; v < WORDS; ++v) acc[i][v] += x * b[v];                  \
        }                                                                                     \
      }                                                                                       \
    }                                                                                         \
  }

#define CLEAR(acc)                             \
  [[unroll]] for (uint i = 0; i < ROWS; ++i)   \
    [[unroll]] for (uint v = 0; v < WORDS; ++v) acc[i][v] = vec4(0.0);

// ---- dropout: one bit per score of the tile -------------------------------------------------------
uint kept_bits[(ROWS + 7) / 8];

// kept_bits from ROWS draws: DRAW(n) gives bits 4 n to 4 n + 3. Loops, since Philox is long, and loops
// without a round when nothing is dropped, since CPU drivers run both sides of a branch.
#define DRAW_TILE(DRAW)                                                          \
  const uint draws = p.keep < 1.0 ? ROWS : 0;                                    \
  [[unroll]] for (uint word = 0; word < (ROWS + 7) / 8; ++word) {               \
    kept_bits[word] = p.keep < 1.0 ? 0 : 0xffffffffu;                            \
    for (uint n = word * 8; n < min(word * 8 + 8, draws); ++n)                   \
      kept_bits[word] |= DRAW(n) << (n - word * 8) * 4;                          \
  }

float drop(float x, uint bit) {
  return (kept_bits[bit / 32] >> bit % 32 & 1) != 0 ? x / p.keep : 0.0;
}
