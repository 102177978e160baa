//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dmask:f32:write
//! types: T = f32 f16
//! params: AttentionParams
//! local: subgroup
//! requires: subgroup shuffle
// A subgroup recomputes a tile of scores for each term of its sum: ROWS queries by four keys of each lane, without
// shared memory.
#include "attention/attention_scores.glsl"
#include "attention/attention_mask_sum.glsl"

#define ROWS 4  // the same as dmask_rows in passes/attention.cpp
#define TILE_COLUMNS (SUBGROUP_SIZE * ATTENTION_PER_LANE)

uint lane = gl_SubgroupInvocationID;
vec4 s[ROWS], ds[ROWS], acc[ROWS];

// Computes c[i][j] = left row i . right row j. The arrays say where rows begin. A lane loads four columns of the left
// rows, which the others get by shuffles.
#define DEFINE_PRODUCTS(name, c, LOAD_LEFT, LOAD_RIGHT)                                          \
  void name(uint left[ROWS], uint right[4]) {                                                    \
    [[unroll]] for (uint i = 0; i < ROWS; ++i) c[i] = vec4(0.0);                                 \
    for (uint d = 0; d < DIM; d += SUBGROUP_SIZE * 4) {                                          \
      vec4 a[ROWS];                                                                              \
      [[unroll]] for (uint i = 0; i < ROWS; ++i) a[i] = LOAD_LEFT(left[i] + min(d + lane * 4, DIM - 4)); \
      const uint words = min(SUBGROUP_SIZE, (DIM - d) / 4);                                      \
      for (uint l = 0; l < words; ++l) {                                                         \
        vec4 b[4];                                                                               \
        [[unroll]] for (uint j = 0; j < 4; ++j) b[j] = LOAD_RIGHT(right[j] + d + l * 4);         \
        [[unroll]] for (uint i = 0; i < ROWS; ++i)                                               \
          [[unroll]] for (uint q = 0; q < 4; ++q)                                                \
            c[i] += subgroupShuffle(a[i][q], l) * vec4(b[0][q], b[1][q], b[2][q], b[3][q]);      \
      }                                                                                          \
    }                                                                                            \
  }
DEFINE_PRODUCTS(query_products, s, load4_q, load4_k)
DEFINE_PRODUCTS(gradient_products, ds, load4_dout, load4_v)

void add_tile(Work w, uint key) {
  // Keys that do not count are not read, since 0 times their values may be NaN.
  const uint count = key_count(w.batch), last = max(count, 1) - 1;
  uint q[ROWS], dout[ROWS], k[4], v[4];
  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    const uint query = min(w.row + i, p.queries - 1);
    q[i] = at(w, p.q_stride) + query * p.q_stride[2];
    dout[i] = ((w.batch * p.queries + query) * p.heads + w.head) * DIM;
  }
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    k[j] = shared_at(w, p.k_stride) + min(key + j, last) * p.k_stride[2];
    v[j] = shared_at(w, p.v_stride) + min(key + j, last) * p.v_stride[2];
  }
  query_products(q, k);
  gradient_products(dout, v);
  // Philox is long, so it is in a loop, which has no round if nothing is dropped: CPU drivers run both sides of a
  // branch.
  uint kept = p.keep < 1.0 ? 0 : 0xffffffffu;
  for (uint i = 0; i < (p.keep < 1.0 ? ROWS : 0); ++i) kept |= draw(w, w.row + i, key) << i * 4;
  const uint stats = (w.batch * p.heads + w.head) * p.queries;
  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    const uint query = w.row + i, row = stats + min(query, p.queries - 1);
    const float lse = load_stats(2 * row), delta = load_stats(2 * row + 1);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const float weight = exp(score(w, s[i][j], query, key + j, count) - lse);
      const float dweight = (kept >> (i * 4 + j) & 1) != 0 ? ds[i][j] / p.keep : 0.0;
      if (query < p.queries) acc[i][j] += score_gradient(weight, dweight, delta);
    }
  }
}

void main() {
  const uint row_tiles = (p.queries + ROWS - 1) / ROWS, rows_kept = SUMS_ROWS ? 1 : row_tiles;
  const uint column_tiles = (p.keys + TILE_COLUMNS - 1) / TILE_COLUMNS;
  const uint tile = group_id() * gl_NumSubgroups + gl_SubgroupID;
  const uint z = tile / column_tiles, head = z / rows_kept;
  const uint key = tile % column_tiles * TILE_COLUMNS + lane * 4;
  if (head >= batches_kept() * heads_kept()) return;

  [[unroll]] for (uint i = 0; i < ROWS; ++i) acc[i] = vec4(0.0);
  for (uint n = 0; n < terms(row_tiles); ++n)
    add_tile(Work(term_batch(head / heads_kept(), n), term_head(head % heads_kept(), n),
                  (SUMS_ROWS ? n : z % rows_kept) * ROWS, 0, true),
             key);

  if (SUMS_ROWS)
    [[unroll]] for (uint i = 1; i < ROWS; ++i) acc[0] += acc[i];
  const uint rows = SUMS_ROWS ? 1 : p.queries;
  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    const uint row = z % rows_kept * ROWS + i;
    [[unroll]] for (uint j = 0; j < 4; ++j)
      if (row < rows && key + j < p.keys) store_dmask((head * rows + row) * p.keys + key + j, acc[i][j]);
  }
}
