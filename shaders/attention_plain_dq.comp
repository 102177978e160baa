//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dq:T:write
//! types: T = f32 f16
//! params: AttentionParams
//! grid: words
//! stands_for: attention_dq
//! reference: none
#include "attention_plain_gradient.glsl"

void main() {
  if (thread_id() >= words_of(p.queries, p.heads)) return;
  const Work w = find_work(thread_id(), p.queries, p.heads);
  const uint count = key_count(w.batch);
  const uint end = key_end(w.row, 1, count);
  vec4 acc = vec4(0.0), lost = acc;
  for (uint key = key_begin(w.row); key < end; ++key) {
    float weight, ds;
    gradient(w, w.row, key, weight, ds);
    add(acc, lost, ds * load4_k(shared_row_at(w, p.k_stride, key) + w.column));
  }
  store4_dq(dense_row(w, p.queries, w.row) + w.column, p.scale * acc);
}
