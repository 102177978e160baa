//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dmask:f32:write
//! types: T = f32 f16
//! params: AttentionParams
//! local: subgroup
//! address: only
//! requires: subgroup shuffle
//! prefers: int64
// A subgroup makes a tile of scores again for each term of its sum. Of WIDTH nothing is used.
#include "attention.glsl"
#include "attention_mask_sum.glsl"
#include "attention_rows.glsl"

vec4 s[ROWS], ds[ROWS], acc[ROWS];
DEFINE_PRODUCTS(query_products, s)
DEFINE_PRODUCTS(gradient_products, ds)

void add_tile(Work w, uint key) {
  const uint stats = (w.batch * p.heads + w.head) * p.queries, count = key_count(w.batch);
  query_products(query_rows(w), w.row, key_rows(w, count), key);
  gradient_products(dense_rows(w, Words64(address_table[3]), p.offset[3], p.queries), w.row,
                    value_rows(w, count), key);
  draw_rows(w, key);
  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    const uint query = w.row + i, row = stats + min(query, p.queries - 1);
    const float lse = load_stats(2 * row), delta = load_stats(2 * row + 1);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const float weight = exp(score(w, s[i][j], query, key + j, count) - lse);
      if (query < p.queries) acc[i][j] += score_gradient(weight, drop(ds[i][j], i * 4 + j), delta);
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
