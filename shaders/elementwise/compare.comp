//! buffers: a:T:read b:T:read y:u8:write
//! types: T = f32 f16 i32 u8
//! params: BinaryParams
//! local: 64
layout(constant_id = 0) const uint OP = 0;  //! COMPARE

int op(T_value x, T_value y) {
  bool r = false;
  switch (OP) {
#define COMPARE(id, name, forward) case id: r = forward; break;
#include "elementwise.def"
  }
  return int(r);
}

ivec4 op(T_vec4 x, T_vec4 y) {
  return ivec4(op(x.x, y.x), op(x.y, y.y), op(x.z, y.z), op(x.w, y.w));
}

#include "elementwise/binary.glsl"
