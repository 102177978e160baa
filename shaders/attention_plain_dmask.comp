//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dmask:f32:write
//! types: T = f32 f16
//! params: AttentionParams
//! grid: words
//! stands_for: attention_dmask
//! reference: none
#include "attention_plain_gradient.glsl"
#include "attention_mask_sum.glsl"

// The gradient of a key's score, summed over what the mask was broadcast along.
float total(uint batch, uint head, uint row, uint key) {
  vec4 acc = vec4(0.0), lost = acc;
  for (uint n = 0; n < terms(p.queries); ++n) {
    const Work w = Work(term_batch(batch, n), term_head(head, n), SUMS_ROWS ? n : row, 0);
    float weight, ds = 0.0;
    if (key < key_count(w.batch) && is_seen(behind(w.row, key))) gradient(w, w.row, key, weight, ds);
    add(acc, lost, vec4(ds, 0.0, 0.0, 0.0));
  }
  return acc.x;
}

void main() {
  const uint rows = SUMS_ROWS ? 1 : p.queries, count = batches_kept() * heads_kept() * rows * p.keys;
  [[unroll]] for (uint u = 0; u < 4; ++u) {
    const uint e = thread_id() * 4 + u, head = e / p.keys / rows;
    if (e < count)
      store_dmask(e, total(head / heads_kept(), head % heads_kept(), e / p.keys % rows, e % p.keys));
  }
}
