//! buffers: x:T:read target:T:read weight:f32:read y:f32:write
//! types: T = f32 f16
//! params: PairLossParams
//! local: 64
//! precise: yes
//! optimize: no
#include "losses/pair_loss.glsl"

vec4 loss4(uint i, vec4 x, vec4 t) {
  return vec4(loss(i, x.x, t.x), loss(i + 1, x.y, t.y), loss(i + 2, x.z, t.z),
              loss(i + 3, x.w, t.w));
}

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n) return;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1] | p.offset[3])) {
    vec4 x_lo, x_hi, t_lo, t_hi;
    load8_x(i, x_lo, x_hi);
    load8_target(i, t_lo, t_hi);
    store8_y(i, loss4(i, x_lo, t_lo), loss4(i + 4, x_hi, t_hi));
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) store_y(k, loss(k, load_x(k), load_target(k)));
  }
}
