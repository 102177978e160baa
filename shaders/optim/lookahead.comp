//! buffers: slow:f32:read_write param:f32:read_write start:f32:read state:f32:read
//! params: AverageParams
//! local: 64
#include "common/counts.glsl"
#include "common/flat.glsl"

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n || load_state(STATE_FOUND_INF) != 0.0) return;
  if ((load_count(STATE_UPDATES) - uint(load_start(0))) % p.every != 0) return;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1])) {
    vec4 slow_lo, slow_hi, lo, hi;
    load8_slow(i, slow_lo, slow_hi);
    load8_param(i, lo, hi);
    slow_lo += p.alpha * (lo - slow_lo);
    slow_hi += p.alpha * (hi - slow_hi);
    store8_slow(i, slow_lo, slow_hi);
    store8_param(i, slow_lo, slow_hi);
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) {
      float slow = load_slow(k);
      slow += p.alpha * (load_param(k) - slow);
      store_slow(k, slow);
      store_param(k, slow);
    }
  }
}
