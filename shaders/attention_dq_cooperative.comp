//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dq:T:write
//! types: T = f16
//! params: AttentionParams
//! define: FACTORS=f16,bf16
//! local: 8 subgroups
//! grid: groups
//! requires: subgroup float16 cooperative
//! reference: none
// The same as `attention_dq`, by a workgroup per tile, with cooperative matrices.
#define SUMS_TILES 2
#include "attention_cooperative.glsl"

SumMatrix acc[RESULTS * MATRICES];
DEFINE_PRODUCTS(query_products, 0, WORD_Q, WORD_K)
DEFINE_PRODUCTS(gradient_products, SUMS, WORD_DOUT, WORD_V)
DEFINE_ACCUMULATE(add_keys, acc, 0, WORD_K)

// Computes the gradients of the scores of the tile's keys from `key` on, without the scale, so that 16-bit floats hold
// more of them.
void weigh(Work w, uint key, uint count) {
  const uint query = w.row + my_row;
  const uint row = (w.batch * p.heads + w.head) * p.queries + min(query, p.queries - 1);
  const float lse = load_stats(2 * row), delta = load_stats(2 * row + 1);
  barrier();
  FOR_MY_PIECES(c) {
    uvec4 word;
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      const uint first = key + c * 8 + h * 4, kept = p.keep == 1.0 ? 15 : draw(w, query, first);
      const vec4 s = sum_of(0, my_row, 2 * c + h), ds = sum_of(1, my_row, 2 * c + h);
      vec4 d;
      [[unroll]] for (uint j = 0; j < 4; ++j)
        d[j] = score_gradient(exp(score(w, s[j], query, first + j, count) - lse), drop(ds[j], kept, j), delta);
      word[2 * h] = pack_factors(d.xy);
      word[2 * h + 1] = pack_factors(d.zw);
    }
    panels[my_row * STRIDE + c] = word;
  }
}

void main() {
  const Work w = find_work(p.queries, p.heads);
  if (!w.exists) return;
  const uint count = key_count(w.batch), end = key_end(w.row, ROWS, count);
  const Rows q = query_rows(w), k = key_rows(w, end), v = value_rows(w, end), dout = gradient_rows(w);
  CLEAR(acc)
  for (uint t = key_begin(w.row) / 4 * 4; t < end; t += COLUMNS) {
    query_products(q, w.row, k, t);
    gradient_products(dout, w.row, v, t);
    weigh(w, t, count);
    add_keys(k, t, end - t);
  }
  const uint query = w.row + my_row, row = (w.batch * p.queries + query) * p.heads + w.head;
  FOR_RESULTS(r) {
    PUT_RESULTS(acc, r)
    FOR_MY_PIECES(c) {
      const uint column = r * 64 + c * 8;
      if (query < p.queries && column < DIM)
        store8_dq(row * DIM + column, p.scale * sum_of(0, my_row, 2 * c), p.scale * sum_of(0, my_row, 2 * c + 1));
    }
  }
}
