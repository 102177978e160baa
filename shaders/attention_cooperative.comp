//! buffers: q:T:read k:T:read v:T:read mask:f32:read lengths:i32:read out:T:write lse:f32:write
//! types: T = f16
//! params: AttentionParams
//! define: FACTORS=f16,bf16
//! local: 8 subgroups
//! grid: groups
//! requires: subgroup float16 cooperative
//! reference: none
// The same as `attention`, by a workgroup per tile, with cooperative matrices.
#define SUMS_TILES 1
#include "attention_cooperative.glsl"

SumMatrix acc[RESULTS * MATRICES];
float top = LOWEST, total = 0.0;             // of my row; `total` is this thread's part
shared float joined[ROWS * 8];               // [row][thread of the row]
shared uvec4 divisors[ROWS * MATRIX_N / 4];  // [row], each MATRIX_N times
DEFINE_PRODUCTS(query_products, 0, WORD_Q, WORD_K)
DEFINE_ACCUMULATE(add_values, acc, 0, WORD_V)

// Returns JOIN of x over the threads of a row, in order.
#define DEFINE_JOIN(name, JOIN)                                                                    \
  float name(float x) {                                                                            \
    barrier();                                                                                     \
    joined[my_row * 8 + my_piece] = x;                                                             \
    barrier();                                                                                     \
    float all = joined[my_row * 8];                                                                \
    for (uint t = 1; t < THREADS / ROWS; ++t) all = JOIN(all, joined[my_row * 8 + t]);             \
    return all;                                                                                    \
  }
#define ADD(x, y) ((x) + (y))
DEFINE_JOIN(join_tops, max)
DEFINE_JOIN(join_totals, ADD)

// Turns products into scores in place, and returns the highest of this thread.
float score_row(Work w, uint key, uint count) {
  float highest = LOWEST;
  FOR_MY_PIECES(c)
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      vec4 s = sum_of(0, my_row, 2 * c + h);
      [[unroll]] for (uint j = 0; j < 4; ++j)
        s[j] = score(w, s[j], w.row + my_row, key + c * 8 + h * 4 + j, count);
      sums[my_row * SUMS_STRIDE + 2 * c + h] = floatBitsToUint(s);
      highest = max(highest, max(max(s.x, s.y), max(s.z, s.w)));
    }
  return highest;
}

// Computes the weights of the tile's keys from `key` on, relative to the maximum so far, and the divisors of the sums
// before it.
void weigh(Work w, uint key, uint count) {
  barrier();
  const float previous = top;
  top = max(previous, join_tops(score_row(w, key, count)));
  const float base = top < ATTENTION_NO_SCORE ? 0.0 : top, rescale = exp(previous - base);
  total *= rescale;
  FOR_MY_PIECES(c) {
    uvec4 word;
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      vec4 s = exp(sum_of(0, my_row, 2 * c + h) - base);
      total += (s.x + s.y) + (s.z + s.w);
      if (p.keep != 1.0) {
        const uint kept = draw(w, w.row + my_row, key + c * 8 + h * 4);
        [[unroll]] for (uint j = 0; j < 4; ++j) s[j] = drop(s[j], kept, j);
      }
      word[2 * h] = pack_factors(s.xy);
      word[2 * h + 1] = pack_factors(s.zw);
    }
    panels[my_row * STRIDE + c] = word;
  }
  for (uint c = my_piece; c < MATRIX_N / 4; c += THREADS / ROWS)
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
  for (uint t = key_begin(w.row) / 4 * 4; t < end; t += COLUMNS) {
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
    FOR_MY_PIECES(c) {
      const uint column = r * 64 + c * 8;
      const vec4 lo = sum_of(0, my_row, 2 * c) / all, hi = sum_of(0, my_row, 2 * c + 1) / all;
      if (query < p.queries && column < DIM)
        store8_out(row * DIM + column, is_empty ? vec4(0.0) : lo, is_empty ? vec4(0.0) : hi);
    }
  }
  if (query < p.queries && my_piece == 0)
    store_lse((w.batch * p.heads + w.head) * p.queries + query, log_sum(top, all));
}
