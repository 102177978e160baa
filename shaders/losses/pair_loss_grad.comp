//! buffers: x:T:read target:T:read weight:f32:read dy:f32:read dx:T:write
//! types: T = f32 f16
//! params: PairLossParams
//! local: 64
//! precise: yes
//! optimize: no
#include "losses/pair_loss.glsl"
layout(constant_id = 2) const uint WRT = 0;  //! 0 1

float slope(uint i, float x, float t) { return WRT == 0 ? slope_x(i, x, t) : slope_t(i, x, t); }

vec4 slope4(uint i, vec4 x, vec4 t) {
  return vec4(slope(i, x.x, t.x), slope(i + 1, x.y, t.y), slope(i + 2, x.z, t.z),
              slope(i + 3, x.w, t.w));
}

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n) return;
  bool one = p.dy_one != 0;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1] | p.offset[4] | (one ? 0 : p.offset[3]))) {
    vec4 x_lo, x_hi, t_lo, t_hi, dy_lo, dy_hi;
    load8_x(i, x_lo, x_hi);
    load8_target(i, t_lo, t_hi);
    if (one) {
      dy_lo = dy_hi = vec4(load_dy(0));
    } else {
      load8_dy(i, dy_lo, dy_hi);
    }
    store8_dx(i, dy_lo * slope4(i, x_lo, t_lo), dy_hi * slope4(i + 4, x_hi, t_hi));
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) {
      store_dx(k, load_dy(one ? 0 : k) * slope(k, load_x(k), load_target(k)));
    }
  }
}
