//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dkv:T:write
//! types: T = f32 f16
//! params: AttentionParams
//! grid: words
//! stands_for: attention_dkv
//! cpu: none
#include "attention_plain_gradient.glsl"

// dk comes first in the result, dv after it.
void main() {
  const uint half_words = words_of(p.keys);
  if (thread_id() >= 2 * half_words) return;
  const bool is_dv = thread_id() >= half_words;
  const Work w = find_work(thread_id() % half_words, p.keys);
  const uint begin = (p.flags & ATTENTION_CAUSAL) != 0 ? w.row : 0;
  const uint end = w.row < key_count(w.batch) ? p.queries : begin;  // keys that do not count have no gradient
  vec4 acc = vec4(0.0), lost = acc;
  for (uint query = begin; query < end; ++query) {
    float weight, ds;
    gradient(w, query, w.row, weight, ds);
    const vec4 dout = load4_dout(dense_row(w, p.queries, query) + w.column);
    const vec4 q = load4_q(row_at(w, p.q_stride, query) + w.column);
    add(acc, lost, is_dv ? drop(w, query, w.row, weight) * dout : ds * q);
  }
  store4_dkv((is_dv ? half_words * 4 : 0) + dense_row(w, p.keys, w.row) + w.column, acc);
}
