//! buffers: q:T:read k:T:read v:T:read mask:f32:read lengths:i32:read out:T:write lse:f32:write
//! types: T = f32 f16
//! params: AttentionParams
//! define: TILE=64,32
//! local: 128
//! grid: groups
//! reference: none
// Online softmax (Milakov and Gimelshein 2018; Dao et al. 2022): a row keeps its maximum and sum so far, and the sums
// so far are rescaled when the maximum grows.
#include "attention/attention_tile.glsl"

vec4 s[MINE];
vec4 acc[MINE][RESULTS];
float top[MINE], total[MINE];  // `total` is this thread's part
DEFINE_PRODUCTS(query_products, s, LOAD_Q, LOAD_K)
DEFINE_PUT_WEIGHTS(put_weights, s)
DEFINE_ACCUMULATE(add_values, acc, LOAD_V)

// Sets x[i] to JOIN of x[i] over the 16 threads of a row, in order.
#define DEFINE_JOIN(name, JOIN)                                             \
  void name(inout float x[MINE]) {                                          \
    barrier();                                                              \
    [[unroll]] for (uint q = 0; q < MY_WORDS; ++q)                          \
      stage[(my_row / 4 + q) * 16 + my_column / 4] =                        \
          vec4(x[q * 4], x[q * 4 + 1], x[q * 4 + 2], x[q * 4 + 3]);         \
    barrier();                                                              \
    [[unroll]] for (uint q = 0; q < MY_WORDS; ++q) {                        \
      vec4 all = stage[(my_row / 4 + q) * 16];                              \
      [[unroll]] for (uint t = 1; t < 16; ++t) {                            \
        const vec4 other = stage[(my_row / 4 + q) * 16 + t];                \
        all = JOIN(all, other);                                             \
      }                                                                     \
      [[unroll]] for (uint i = 0; i < 4; ++i) x[q * 4 + i] = all[i];        \
    }                                                                       \
  }
#define ADD(x, y) ((x) + (y))
DEFINE_JOIN(join_tops, max)
DEFINE_JOIN(join_totals, ADD)

// Computes the weights of the tile's keys from `key` on, relative to the maximum so far.
void weigh(Work w, uint key, uint count) {
  // A loop that rotates the vectors needs a quarter of the code.
  [[dont_unroll]] for (uint j = 0; j < 4; ++j)
    FOR_MINE(i) s[i] = vec4(s[i].yzw, score(w, s[i].x, w.row + my_row + i, key + j, count));
  float highest[MINE];
  FOR_MINE(i) highest[i] = max(max(s[i].x, s[i].y), max(s[i].z, s[i].w));
  join_tops(highest);
  FOR_MINE(i) {
    const float previous = top[i];
    top[i] = max(previous, highest[i]);
    const float base = top[i] < ATTENTION_NO_SCORE ? 0.0 : top[i];
    const float rescale = exp(previous - base);
    s[i] = exp(s[i] - base);
    total[i] = total[i] * rescale + ((s[i].x + s[i].y) + (s[i].z + s[i].w));
    FOR_RESULTS(r) acc[i][r] *= rescale;
  }
  if (p.keep == 1.0) return;
  FOR_MINE(i) {
    const uint kept = draw(w, w.row + my_row + i, key);
    [[unroll]] for (uint j = 0; j < 4; ++j) s[i][j] = drop(s[i][j], kept, j);
  }
}

void main() {
  const Work w = find_work(p.queries, p.heads);
  if (!w.exists) return;
  const uint count = key_count(w.batch), end = key_end(w.row, ROWS, count);
  const Rows q = query_rows(w), k = key_rows(w, end), v = value_rows(w, end);
  CLEAR(acc)
  FOR_MINE(i) {
    top[i] = LOWEST;
    total[i] = 0.0;
  }
  for (uint t = key_begin(w.batch, w.row) / 4 * 4; t < end; t += COLUMNS) {
    query_products(q, w.row, k, t);
    weigh(w, t + my_column, count);
    put_weights();
    add_values(v, t, end - t, w.column);
  }
  join_totals(total);
  FOR_MINE(i) {
    const uint query = w.row + my_row + i;
    const bool empty = total[i] == 0.0;  // false for NaN
    if (query < p.queries) {
      const uint row = (w.batch * p.queries + query) * p.heads + w.head;
      FOR_RESULTS(r) {
        const uint column = result_column(w, r);
        if (column < DIM) store4_out(row * DIM + column, empty ? vec4(0.0) : acc[i][r] / total[i]);
      }
      if (result_column(w, 0) == 0)
        store_lse((w.batch * p.heads + w.head) * p.queries + query, log_sum(top[i], total[i]));
    }
  }
}
