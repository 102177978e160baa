//! buffers: q:T:read k:T:read v:T:read mask:f32:read lengths:i32:read out:T:write lse:f32:write
//! types: T = f32 f16
//! params: AttentionParams
//! grid: words
//! stands_for: attention
//! reference: none
#include "attention_plain.glsl"

void main() {
  if (thread_id() >= words_of(p.queries, p.heads)) return;
  const Work w = find_work(thread_id(), p.queries, p.heads);
  const uint count = key_count(w.batch);
  const uint end = key_end(w.row, 1, count);
  const uint q = row_at(w, p.q_stride, w.row);
  float top = LOWEST;
  vec4 acc = vec4(0.0), acc_lost = acc, totals = acc, totals_lost = acc;
  for (uint key = key_begin(w.row); key < end; ++key) {
    const uint k = shared_row_at(w, p.k_stride, key);
    float product = 0.0;
#define MULTIPLY(d) product += dot(load4_q(q + (d)), load4_k(k + (d)));
    FOR_WORDS(MULTIPLY)
    const float s = score(w, w.row, key, product), previous = top;
    top = max(top, s);
    const float base = top < ATTENTION_NO_SCORE ? 0.0 : top;
    const float rescale = exp(previous - base), weight = exp(s - base);
    acc *= rescale;
    acc_lost *= rescale;
    totals *= rescale;
    totals_lost *= rescale;
    add(totals, totals_lost, vec4(weight, 0.0, 0.0, 0.0));
    add(acc, acc_lost, drop(w, w.row, key, weight) * load4_v(shared_row_at(w, p.v_stride, key) + w.column));
  }
  const float total = totals.x;
  const bool empty = total == 0.0;  // not for a NaN
  store4_out(dense_row(w, p.queries, w.row) + w.column, empty ? vec4(0.0) : acc / total);
  if (w.column == 0)
    store_lse((w.batch * p.heads + w.head) * p.queries + w.row, log_sum(top, total));
}
