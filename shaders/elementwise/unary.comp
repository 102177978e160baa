//! buffers: x:T:read y:T:write
//! types: T = f32 f16
//! params: UnaryParams
//! local: 64
//! precise: yes
#include "elementwise/elementwise.glsl"
#include "common/flat.glsl"
#include "common/strided.glsl"
layout(constant_id = 0) const uint OP = 0;  //! UNARY
layout(constant_id = 1) const uint FLAT = 0;  //! 0 1

float op(float x) {
  float a = p.a, b = p.b;
  float y = 0.0;
  switch (OP) {
#define UNARY(id, name, forward, grad, saves, lo, hi) case id: y = forward; break;
#include "elementwise.def"
  }
  return y;
}

vec4 op(vec4 v) { return vec4(op(v.x), op(v.y), op(v.z), op(v.w)); }

void unary_flat(uint i) {
  if (is_whole(i, p.n, p.offset[0] | p.offset[1])) {
    vec4 lo, hi;
    load8_x(i, lo, hi);
    store8_y(i, op(lo), op(hi));
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) store_y(k, op(load_x(k)));
  }
}

void main() {
  uint i = thread_id() * (FLAT == 1 ? REWIND_FLAT : 1);
  if (i >= p.n) return;
  if (FLAT == 1) {
    unary_flat(i);
  } else {
    uint x = 0;
    for (uint d = p.rank, rest = i; d-- > 0;) x += next_coordinate(rest, d) * p.x_stride[d];
    store_y(i, op(load_x(x)));
  }
}
