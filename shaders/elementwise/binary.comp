//! buffers: a:T:read b:T:read y:T:write
//! types: T = f32 f16 i32
//! params: BinaryParams
//! local: 64
//! precise: yes
#include "elementwise/elementwise.glsl"
layout(constant_id = 0) const uint OP = 0;  //! BINARY

T_value op(T_value x, T_value y) {
  T_value r = x;
  switch (OP) {
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) case id: r = forward; break;
#if !T_FLOAT
#define BINARY_FLOAT(id, name, forward, lo, hi, lo_y, hi_y)
#endif
#include "elementwise.def"
  }
  return r;
}

T_vec4 op(T_vec4 x, T_vec4 y) {
  return T_vec4(op(x.x, y.x), op(x.y, y.y), op(x.z, y.z), op(x.w, y.w));
}

#include "elementwise/binary.glsl"
