//! buffers: q:T:read k:T:read v:T:read mask:f32:read lengths:i32:read out:T:write lse:f32:write
//! types: T = f16
//! params: AttentionParams
//! define: FACTORS=f16,bf16
//! local: 8 subgroups
//! grid: groups
//! requires: subgroup float16 cooperative
//! reference: none
// The same as `attention`, by a workgroup per tile, with cooperative matrices.
#include "attention/attention_cooperative.glsl"

SumMatrix acc[RESULTS * MATRICES];
float top = LOWEST, total = 0.0;             // of my row; `total` is this thread's part
shared float joined[THREADS];                // [row][thread of the row]
shared uvec4 divisors[ROWS * MATRIX_N / 4];  // [row], each MATRIX_N times
DEFINE_PRODUCTS(query_products, WORD_Q, WORD_K)
DEFINE_ACCUMULATE(add_values, acc, 0, WORD_V)

// Returns JOIN of x over the threads of a row, in order.
#define DEFINE_JOIN(name, JOIN)                                                                    \
  float name(float x) {                                                                            \
    barrier();                                                                                     \
    joined[thread] = x;                                                                            \
    barrier();                                                                                     \
    float all = joined[thread - my_piece];                                                         \
    [[unroll]] for (uint t = 1; t < ROW_THREADS; ++t) all = JOIN(all, joined[thread - my_piece + t]); \
    return all;                                                                                    \
  }
#define ADD(x, y) ((x) + (y))
DEFINE_JOIN(join_tops, max)
DEFINE_JOIN(join_totals, ADD)

// Computes the weights of the tile's keys from `key` on, relative to the maximum so far, and the divisors of the sums
// before it.
void weigh(Work w, uint key, uint count) {
  vec4 s[2 * PIECES];
  float highest = LOWEST;
  barrier();
  FOR_MY_PIECES(n, c)
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      vec4 products = sum_of(my_row, 2 * c + h);
      [[unroll]] for (uint j = 0; j < 4; ++j)
        products[j] = score(w, products[j], w.row + my_row, key + c * 8 + h * 4 + j, count);
      s[2 * n + h] = products;
      highest = max(highest, max(max(products.x, products.y), max(products.z, products.w)));
    }
  const float previous = top;
  top = max(previous, join_tops(highest));  // after which no thread reads products
  const float base = top < ATTENTION_NO_SCORE ? 0.0 : top, rescale = exp(previous - base);
  total *= rescale;
  FOR_MY_PIECES(n, c) {
    uvec4 word;
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      vec4 weights = exp(s[2 * n + h] - base);
      total += (weights.x + weights.y) + (weights.z + weights.w);
      if (p.keep != 1.0) {
        const uint kept = draw(w, w.row + my_row, key + c * 8 + h * 4);
        [[unroll]] for (uint j = 0; j < 4; ++j) weights[j] = drop(weights[j], kept, j);
      }
      word[2 * h] = pack_factors(weights.xy);
      word[2 * h + 1] = pack_factors(weights.zw);
    }
    panels[my_row * STRIDE + c] = word;
  }
  for (uint c = my_piece; c < MATRIX_N / 4; c += ROW_THREADS)
    divisors[my_row * (MATRIX_N / 4) + c] = floatBitsToUint(vec4(1.0 / rescale));
}

// Divides, since the older form of GLSL cannot multiply matrices element by element.
void rescale_sums() {
  barrier();
  [[unroll]] for (uint i = 0; i < DOWN; ++i) {
    SumMatrix by;
    load_rows(by, divisors, (block_row + i * MATRIX_M) * (MATRIX_N / 4), MATRIX_N / 4);
    FOR_RESULTS(r)
      [[unroll]] for (uint j = 0; j < ACROSS; ++j) {
        const uint m = r * MATRICES + i * ACROSS + j;
        acc[m] = acc[m] / by;
      }
  }
}

void main() {
  const Work w = find_work(p.queries, p.heads);
  if (!w.exists) return;
  const uint count = key_count(w.batch), end = key_end(w.row, ROWS, count);
  const Rows q = query_rows(w), k = key_rows(w, end), v = value_rows(w, end);
  CLEAR(acc)
  for (uint t = key_begin(w.batch, w.row) / 4 * 4; t < end; t += COLUMNS) {
    query_products(q, w.row, k, t);
    weigh(w, t, count);
    rescale_sums();
    add_values(v, t, end - t);
  }
  const float all = join_totals(total);
  const bool is_empty = all == 0.0;  // false for NaN
  const uint query = w.row + my_row, row = (w.batch * p.queries + query) * p.heads + w.head;
  FOR_RESULTS(r) {
    PUT_RESULTS(acc, r)
    FOR_MY_PIECES(n, c) {
      const uint column = r * 64 + c * 8;
      const vec4 lo = sum_of(my_row, 2 * c) / all, hi = sum_of(my_row, 2 * c + 1) / all;
      if (query < p.queries && column < DIM)
        store8_out(row * DIM + column, is_empty ? vec4(0.0) : lo, is_empty ? vec4(0.0) : hi);
    }
  }
  if (query < p.queries && my_piece == 0)
    store_lse((w.batch * p.heads + w.head) * p.queries + query, log_sum(top, all));
}
