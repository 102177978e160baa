// Two products of a query and a key, and what follows from them.
#include "attention_plain.glsl"

// The weight before dropout, and the gradient of the score after scaling.
void gradient(Work w, uint query, uint key, out float weight, out float ds) {
  const uint q = row_at(w, p.q_stride, query), k = shared_row_at(w, p.k_stride, key);
  const uint v = shared_row_at(w, p.v_stride, key), dout = dense_row(w, p.queries, query);
  const uint stats = 2 * ((w.batch * p.heads + w.head) * p.queries + query);
  float product = 0.0, dweight = 0.0;
#define MULTIPLY(d)                                \
  product += dot(load4_q(q + (d)), load4_k(k + (d))); \
  dweight += dot(load4_dout(dout + (d)), load4_v(v + (d)));
  FOR_WORDS(MULTIPLY)
  weight = exp(score(w, query, key, product) - load_stats(stats));
  ds = score_gradient(weight, drop(w, query, key, dweight), load_stats(stats + 1));
}
