//! buffers: s:T:read dy:T:read dx:T:write
//! types: T = f32 f16
//! params: UnaryGradParams
//! local: 64
//! precise: yes
#include "elementwise/elementwise.glsl"
#include "common/flat.glsl"
layout(constant_id = 0) const uint OP = 0;  //! UNARY

float op(float s, float dy) {
  float a = p.a, b = p.b;
  float dx = 0.0;
  switch (OP) {
#define UNARY(id, name, forward, grad, saves, lo, hi) case id: dx = grad; break;
#include "elementwise.def"
  }
  return dx;
}

vec4 op(vec4 s, vec4 dy) {
  return vec4(op(s.x, dy.x), op(s.y, dy.y), op(s.z, dy.z), op(s.w, dy.w));
}

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n) return;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1] | p.offset[2])) {
    vec4 s_lo, s_hi, dy_lo, dy_hi;
    load8_s(i, s_lo, s_hi);
    load8_dy(i, dy_lo, dy_hi);
    store8_dx(i, op(s_lo, dy_lo), op(s_hi, dy_hi));
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) store_dx(k, op(load_s(k), load_dy(k)));
  }
}
