//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dkv:T:write
//! types: T = f32 f16
//! params: AttentionParams
//! define: TILE=32
//! local: 128
//! grid: groups
//! reference: none
// Rows are keys, columns are queries.
#include "attention/attention_tile.glsl"

vec4 s[MINE], ds[MINE];
vec4 dk[MINE][RESULTS], dv[MINE][RESULTS];
DEFINE_PRODUCTS(key_products, s, LOAD_K, LOAD_Q)
DEFINE_PRODUCTS(gradient_products, ds, LOAD_V, LOAD_DOUT)
DEFINE_PUT_WEIGHTS(put_weights, s)
DEFINE_PUT_WEIGHTS(put_gradients, ds)
DEFINE_ACCUMULATE(add_gradients, dv, LOAD_DOUT)
DEFINE_ACCUMULATE(add_queries, dk, LOAD_Q)

// Turns ds into the gradient of the scores of this thread's queries from `query` on, and s into their kept weights.
void weigh(Work w, uint query, uint end, uint count) {
  const uint stats = (w.batch * p.heads + w.head) * p.queries, key = w.row + my_row;
  // A loop that rotates the vectors needs a quarter of the code.
  [[dont_unroll]] for (uint j = 0; j < 4; ++j) {
    const uint row = stats + min(query + j, p.queries - 1);
    const float lse = load_stats(2 * row), delta = load_stats(2 * row + 1);
    const uint kept = p.keep == 1.0 ? 15 : draw(w, query + j, key);
    FOR_MINE(i) {
      float weight = exp(score(w, s[i].x, query + j, key + i, count) - lse);
      if (query + j >= end) weight = 0.0;
      s[i] = vec4(s[i].yzw, drop(weight, kept, i));
      ds[i] = vec4(ds[i].yzw, score_gradient(weight, drop(ds[i].x, kept, i), delta) * p.scale);
    }
  }
}

// Adds the part of the queries of one head.
void add_head(Work w) {
  const uint count = key_count(w.batch), begin = query_begin(w.row);
  // Keys that do not count have no gradient.
  const uint end = w.row < count ? query_end(w.batch, w.row, ROWS) : begin;
  const Rows q = query_rows(w), k = key_rows(w, p.keys), v = value_rows(w, p.keys);
  const Rows dout = gradient_rows(w);
  if (begin >= end) return;  // lavapipe 26.1.6 crashes in a loop that no thread enters (docs/vulkan.md)
  for (uint t = begin; t < end; t += COLUMNS) {
    key_products(k, w.row, q, t);
    gradient_products(v, w.row, dout, t);
    weigh(w, t + my_column, end, count);
    put_weights();
    add_gradients(dout, t, end - t, w.column);
    barrier();  // until all have read the weights
    put_gradients();
    add_queries(q, t, end - t, w.column);
  }
}

void main() {
  const uint heads = p.heads / GROUP;
  const Work tile = find_work(p.keys, heads);
  if (!tile.exists) return;
  CLEAR(dk)
  CLEAR(dv)
  for (uint member = 0; member < GROUP; ++member) {
    Work w = tile;
    w.head = tile.head * GROUP + member;
    add_head(w);
  }
  const uint dv_part = p.batch * p.keys * heads * DIM;
  FOR_MINE(i) {
    const uint key = tile.row + my_row + i;
    const uint row = (tile.batch * p.keys + key) * heads + tile.head;
    FOR_RESULTS(r) {
      const uint column = result_column(tile, r);
      if (key < p.keys && column < DIM) {
        store4_dkv(row * DIM + column, dk[i][r]);
        store4_dkv(dv_part + row * DIM + column, dv[i][r]);
      }
    }
  }
}
