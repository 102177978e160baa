//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dq:T:write
//! types: T = f16
//! params: AttentionParams
//! define: FACTORS=f16,bf16
//! local: 8 subgroups
//! grid: groups
//! requires: subgroup float16 cooperative
//! reference: none
// The same as `attention_dq`, by a workgroup per tile, with cooperative matrices.
#include "attention/attention_cooperative.glsl"

SumMatrix acc[RESULTS * MATRICES];
DEFINE_PRODUCTS(query_products, WORD_Q, WORD_K)
DEFINE_PRODUCTS(gradient_products, WORD_DOUT, WORD_V)
DEFINE_ACCUMULATE(add_keys, acc, 0, WORD_K)

vec4 weights[2 * PIECES];  // of my pieces
uint kept[2 * PIECES];     // by bits: is it kept?

// Takes the weights of the tile's keys from `key` on from their products.
void weigh(Work w, uint key, uint count, float lse) {
  barrier();
  FOR_MY_PIECES(n, c)
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      const uint first = key + c * 8 + h * 4;
      const vec4 s = sum_of(my_row, 2 * c + h);
      [[unroll]] for (uint j = 0; j < 4; ++j)
        weights[2 * n + h][j] = exp(score(w, s[j], w.row + my_row, first + j, count) - lse);
      kept[2 * n + h] = p.keep == 1.0 ? 15 : draw(w, w.row + my_row, first);
    }
}

// Turns the products that are the gradients of these weights into those of the scores, without the scale, so that 16-bit
// floats hold more of them.
void differentiate(float delta) {
  uvec4 words[PIECES];
  barrier();
  FOR_MY_PIECES(n, c)
    [[unroll]] for (uint h = 0; h < 2; ++h) {
      const vec4 ds = sum_of(my_row, 2 * c + h);
      vec4 d;
      [[unroll]] for (uint j = 0; j < 4; ++j)
        d[j] = score_gradient(weights[2 * n + h][j], drop(ds[j], kept[2 * n + h], j), delta);
      words[n][2 * h] = pack_factors(d.xy);
      words[n][2 * h + 1] = pack_factors(d.zw);
    }
  barrier();
  FOR_MY_PIECES(n, c) panels[my_row * STRIDE + c] = words[n];
}

void main() {
  const Work w = find_work(p.queries, p.heads);
  if (!w.exists) return;
  const uint count = key_count(w.batch), end = key_end(w.row, ROWS, count);
  const Rows q = query_rows(w), k = key_rows(w, end), v = value_rows(w, end), dout = gradient_rows(w);
  const uint query = w.row + my_row, row = (w.batch * p.queries + query) * p.heads + w.head;
  const uint stat = (w.batch * p.heads + w.head) * p.queries + min(query, p.queries - 1);
  const float lse = load_stats(2 * stat), delta = load_stats(2 * stat + 1);
  CLEAR(acc)
  for (uint t = key_begin(w.batch, w.row) / 4 * 4; t < end; t += COLUMNS) {
    query_products(q, w.row, k, t);
    weigh(w, t, count, lse);
    gradient_products(dout, w.row, v, t);
    differentiate(delta);
    add_keys(k, t, end - t);
  }
  FOR_RESULTS(r) {
    PUT_RESULTS(acc, r)
    FOR_MY_PIECES(n, c) {
      const uint column = r * 64 + c * 8;
      if (query < p.queries && column < DIM)
        store8_dq(row * DIM + column, p.scale * sum_of(my_row, 2 * c), p.scale * sum_of(my_row, 2 * c + 1));
    }
  }
}
