//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dkv:T:write
//! types: T = f32 f16
//! params: AttentionParams
//! grid: words
//! stands_for: attention_dkv
//! reference: none
#include "attention_plain_gradient.glsl"

// dk comes first in the result, dv after it.
void main() {
  const uint heads = p.heads / GROUP, half_words = words_of(p.keys, heads);
  if (thread_id() >= 2 * half_words) return;
  const bool is_dv = thread_id() >= half_words;
  const Work row = find_work(thread_id() % half_words, p.keys, heads);
  const uint key = row.row, begin = query_begin(key);
  // Keys that do not count have no gradient.
  const uint end = key < key_count(row.batch) ? query_end(key, 1) : begin;
  vec4 acc = vec4(0.0), lost = acc;
  for (uint member = 0; member < GROUP; ++member) {
    Work w = row;
    w.head = row.head * GROUP + member;
    for (uint query = begin; query < end; ++query) {
      float weight, ds;
      gradient(w, query, key, weight, ds);
      const vec4 dout = load4_dout(dense_row(w, p.queries, query) + w.column);
      const vec4 q = load4_q(row_at(w, p.q_stride, query) + w.column);
      add(acc, lost, is_dv ? drop(w, query, key, weight) * dout : ds * q);
    }
  }
  const uint e = ((row.batch * p.keys + key) * heads + row.head) * DIM + row.column;
  store4_dkv((is_dv ? half_words * 4 : 0) + e, is_dv ? acc : p.scale * acc);
}
