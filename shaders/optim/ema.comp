//! buffers: average:f32:read_write param:f32:read start:f32:read state:f32:read
//! params: AverageParams
//! local: 64
#include "optim/moments.glsl"
#include "common/counts.glsl"
#include "common/flat.glsl"

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n || load_state(STATE_FOUND_INF) != 0.0) return;
  uint since = load_count(STATE_UPDATES) - uint(load_start(0)), ticks = since / p.every;
  if (since % p.every != 0) return;
  float rate = p.kind == AVERAGE_EQUAL ? 1.0 / ticks : 1.0 - p.decay;
  if (p.kind == AVERAGE_CORRECTED) rate /= one_minus_power(p.decay, ticks);
  if (is_whole(i, p.n, p.offset[0] | p.offset[1])) {
    vec4 average_lo, average_hi, lo, hi;
    load8_average(i, average_lo, average_hi);
    load8_param(i, lo, hi);
    store8_average(i, average_lo + rate * (lo - average_lo), average_hi + rate * (hi - average_hi));
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) {
      float average = load_average(k);
      store_average(k, average + rate * (load_param(k) - average));
    }
  }
}
