//! buffers: partial:f32:read state:f32:read_write
//! params: GradStatsParams
//! local: 64
#include "common/counts.glsl"

void main() {
  uint c = thread_id();
  if (c >= p.chunks || load_state(STATE_FOUND_INF) != 0.0) return;
  if (load_partial(2 * p.chunks + c) != 0.0) return;
  uint low = STATE_MISSED(c), high = low + 1, missed = load_digits(low, high) + 1;
  store_state(low, float(missed & 0xffffffu));
  store_state(high, float(missed >> 24));
}
