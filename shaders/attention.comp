//! buffers: q:T:read k:T:read v:T:read mask:f32:read lengths:i32:read out:T:write lse:f32:write
//! types: T = f32 f16
//! params: AttentionParams
//! local: subgroup
//! address: only
//! requires: subgroup shuffle
//! prefers: int64
// Softmax on the way (Milakov and Gimelshein 2018; Dao et al. 2022): a row keeps its maximum and sum so
// far, and what it has summed is rescaled when the maximum grows.
#include "attention.glsl"
#include "attention_rows.glsl"

vec4 s[ROWS];
vec4 acc[ROWS][WORDS];
float top[ROWS], total[ROWS];  // total: this lane's part
DEFINE_PRODUCTS(query_products, s)
DEFINE_ACCUMULATE(add_values, acc, s)

void main() {
  const Work w = find_work(p.queries, p.heads);
  if (!w.exists) return;
  const uint count = key_count(w.batch), end = key_end(w.row, ROWS, count);
  Rows q = query_rows(w), k = key_rows(w, count), v = value_rows(w, count);

  CLEAR(acc)
  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    top[i] = LOWEST;
    total[i] = 0.0;
  }
  for (uint t = key_begin(w.row) / 4 * 4; t < end; t += TILE_COLUMNS) {
    const uint key = t + lane * 4;
    query_products(q, w.row, k, key);
    draw_rows(w, key);
    [[unroll]] for (uint i = 0; i < ROWS; ++i) {
      [[unroll]] for (uint j = 0; j < 4; ++j) s[i][j] = score(w, s[i][j], w.row + i, key + j, count);
      const float previous = top[i];
      top[i] = max(previous, highest_in_subgroup(max(max(s[i].x, s[i].y), max(s[i].z, s[i].w))));
      const float base = top[i] < ATTENTION_NO_SCORE ? 0.0 : top[i];
      const float rescale = exp(previous - base);
      s[i] = exp(s[i] - base);
      total[i] = total[i] * rescale + ((s[i].x + s[i].y) + (s[i].z + s[i].w));
      [[unroll]] for (uint u = 0; u < WORDS; ++u) acc[i][u] *= rescale;
      [[unroll]] for (uint j = 0; j < 4; ++j) s[i][j] = drop(s[i][j], i * 4 + j);
    }
    add_values(v, t, end - t, w.column);
  }

  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    const uint query = w.row + i;
    const float sum = sum_of_subgroup(total[i]);
    const bool empty = sum == 0.0;  // not for a NaN
    if (query < p.queries && w.column < DIM) {
      const uint e = ((w.batch * p.queries + query) * p.heads + w.head) * DIM + w.column;
      [[unroll]] for (uint u = 0; u < WORDS; ++u)
        store4_out(e + u * 4, empty ? vec4(0.0) : acc[i][u] / sum);
      if (w.column == 0) store_lse((w.batch * p.heads + w.head) * p.queries + query, log_sum(top[i], sum));
    }
  }
}
