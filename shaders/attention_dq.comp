//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dq:T:write
//! types: T = f32 f16
//! params: AttentionParams
//! local: subgroup
//! address: only
//! requires: subgroup shuffle
//! prefers: int64
#include "attention.glsl"
#include "attention_rows.glsl"

vec4 s[ROWS], ds[ROWS];
vec4 acc[ROWS][WORDS];
DEFINE_PRODUCTS(query_products, s)
DEFINE_PRODUCTS(gradient_products, ds)
DEFINE_ACCUMULATE(add_keys, acc, ds)

void main() {
  const Work w = find_work(p.queries, p.heads);
  if (!w.exists) return;
  const uint count = key_count(w.batch), end = key_end(w.row, ROWS, count);
  Rows q = query_rows(w), k = key_rows(w, count), v = value_rows(w, count);
  Rows dout = dense_rows(w, Words64(address_table[3]), p.offset[3], p.queries);
  const uint stats = (w.batch * p.heads + w.head) * p.queries;

  CLEAR(acc)
  for (uint t = key_begin(w.row) / 4 * 4; t < end; t += TILE_COLUMNS) {
    const uint key = t + lane * 4;
    query_products(q, w.row, k, key);
    gradient_products(dout, w.row, v, key);
    draw_rows(w, key);
    [[unroll]] for (uint i = 0; i < ROWS; ++i) {
      const uint query = w.row + i, row = stats + min(query, p.queries - 1);
      const float lse = load_stats(2 * row), delta = load_stats(2 * row + 1);
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        const float weight = exp(score(w, s[i][j], query, key + j, count) - lse);
        ds[i][j] = score_gradient(weight, drop(ds[i][j], i * 4 + j), delta) * p.scale;
      }
    }
    add_keys(k, t, end - t, w.column);
  }

  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    const uint query = w.row + i;
    if (query < p.queries && w.column < DIM) {
      const uint e = ((w.batch * p.queries + query) * p.heads + w.head) * DIM + w.column;
      [[unroll]] for (uint u = 0; u < WORDS; ++u) store4_dq(e + u * 4, acc[i][u]);
    }
  }
}
