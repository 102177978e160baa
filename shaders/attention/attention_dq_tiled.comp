//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dq:T:write
//! types: T = f32 f16
//! params: AttentionParams
//! define: TILE=32
//! local: 128
//! grid: groups
//! reference: none
#include "attention/attention_tile.glsl"

vec4 s[MINE], ds[MINE];
vec4 acc[MINE][RESULTS];
DEFINE_PRODUCTS(query_products, s, LOAD_Q, LOAD_K)
DEFINE_PRODUCTS(gradient_products, ds, LOAD_DOUT, LOAD_V)
DEFINE_PUT_WEIGHTS(put_gradients, ds)
DEFINE_ACCUMULATE(add_keys, acc, LOAD_K)

void main() {
  const Work w = find_work(p.queries, p.heads);
  if (!w.exists) return;
  const uint count = key_count(w.batch), end = key_end(w.row, ROWS, count);
  const Rows q = query_rows(w), k = key_rows(w, end), v = value_rows(w, end), dout = gradient_rows(w);
  const uint stats = (w.batch * p.heads + w.head) * p.queries;
  CLEAR(acc)
  for (uint t = key_begin(w.batch, w.row) / 4 * 4; t < end; t += COLUMNS) {
    const uint key = t + my_column;
    query_products(q, w.row, k, t);
    gradient_products(dout, w.row, v, t);
    float lse[MINE], delta[MINE];
    uint kept[MINE];
    FOR_MINE(i) {
      const uint query = w.row + my_row + i, row = stats + min(query, p.queries - 1);
      lse[i] = load_stats(2 * row);
      delta[i] = load_stats(2 * row + 1);
      kept[i] = p.keep == 1.0 ? 15 : draw(w, query, key);
    }
    // A loop that rotates the vectors needs a quarter of the code.
    [[dont_unroll]] for (uint j = 0; j < 4; ++j)
      FOR_MINE(i) {
        const float weight =
            exp(score(w, s[i].x, w.row + my_row + i, key + j, count) - lse[i]);
        s[i] = s[i].yzwx;
        ds[i] = vec4(ds[i].yzw, score_gradient(weight, drop(ds[i].x, kept[i], j), delta[i]) * p.scale);
      }
    put_gradients();
    add_keys(k, t, end - t, w.column);
  }
  FOR_MINE(i) {
    const uint query = w.row + my_row + i;
    const uint row = (w.batch * p.queries + query) * p.heads + w.head;
    FOR_RESULTS(r) {
      const uint column = result_column(w, r);
      if (query < p.queries && column < DIM) store4_dq(row * DIM + column, acc[i][r]);
    }
  }
}
