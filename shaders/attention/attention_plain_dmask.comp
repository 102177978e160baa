//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dmask:f32:write
//! types: T = f32 f16
//! params: AttentionParams
//! grid: words
//! stands_for: attention_dmask
//! reference: none
// For devices without subgroup shuffle: a thread makes four elements, one score after the other. This is slow, but
// right on every device.
#include "attention/attention_scores.glsl"
#include "attention/attention_mask_sum.glsl"

// Applies dropout to x, a value of the weight of this query and key.
float drop(Work w, uint query, uint key, float x) {
  if (p.keep == 1.0) return x;
  return (draw(w, query, key / 4 * 4) >> key % 4 & 1) != 0 ? x / p.keep : 0.0;
}

// Returns the gradient of a score.
float gradient(Work w, uint query, uint key) {
  const uint q = at(w, p.q_stride) + query * p.q_stride[2], k = shared_at(w, p.k_stride) + key * p.k_stride[2];
  const uint v = shared_at(w, p.v_stride) + key * p.v_stride[2];
  const uint dout = ((w.batch * p.queries + query) * p.heads + w.head) * DIM;
  const uint stats = 2 * ((w.batch * p.heads + w.head) * p.queries + query);
  float product = 0.0, dweight = 0.0;
  // Takes few rounds, since stock lavapipe leaves all loops after 65535 (docs/kernels.md), and steps of one, since it
  // unrolls no others.
  for (uint first = 0; first < DIM; first += 32) {
    [[unroll]] for (uint u = 0; u < 8; ++u) {
      const uint d = first + u * 4;
      if (d < DIM) {
        product += dot(load4_q(q + d), load4_k(k + d));
        dweight += dot(load4_dout(dout + d), load4_v(v + d));
      }
    }
  }
  const float weight = exp(score(w, product, query, key, p.keys) - load_stats(stats));
  return score_gradient(weight, drop(w, query, key, dweight), load_stats(stats + 1));
}

// Returns the gradient of a key's score, summed over the dimensions along which the mask was broadcast, with
// compensation of rounding errors (Kahan 1965).
float total(uint batch, uint head, uint row, uint key) {
  precise float sum = 0.0, lost = 0.0;
  for (uint n = 0; n < terms(p.queries); ++n) {
    const Work w = Work(term_batch(batch, n), term_head(head, n), SUMS_ROWS ? n : row, 0, true);
    const bool counts = key < key_count(w.batch) && is_seen(behind(w.row, key));
    precise float x = (counts ? gradient(w, w.row, key) : 0.0) - lost, next = sum + x;
    lost = (next - sum) - x;
    sum = next;
  }
  return sum;
}

void main() {
  const uint rows = SUMS_ROWS ? 1 : p.queries, count = batches_kept() * heads_kept() * rows * p.keys;
  [[unroll]] for (uint u = 0; u < 4; ++u) {
    const uint e = thread_id() * 4 + u, head = e / p.keys / rows;
    if (e < count)
      store_dmask(e, total(head / heads_kept(), head % heads_kept(), e / p.keys % rows, e % p.keys));
  }
}
