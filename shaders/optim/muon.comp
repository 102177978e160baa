//! buffers: param:f32:read_write update:f32:read state:f32:read
//! params: MuonParams
//! local: 64
#include "common/flat.glsl"

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n || load_state(STATE_FOUND_INF) != 0.0) return;
  float lr = p.lr * load_state(STATE_LR_FACTOR);
  float keep = 1.0 - lr * p.weight_decay, rate = lr * p.ratio;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1])) {
    vec4 x_lo, x_hi, u_lo, u_hi;
    load8_param(i, x_lo, x_hi);
    load8_update(i, u_lo, u_hi);
    store8_param(i, keep * x_lo - rate * u_lo, keep * x_hi - rate * u_hi);
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) {
      store_param(k, keep * load_param(k) - rate * load_update(k));
    }
  }
}
