//! buffers: c:u8:read a:T:read b:T:read y:T:write
//! types: T = f32 f16 i32 u8
//! params: WhereParams
//! local: 64
#include "common/strided.glsl"

void main() {
  uint i = thread_id();
  if (i >= p.n) return;
  uint a = 0, b = 0, c = 0;
  for (uint d = p.rank, rest = i; d-- > 0;) {
    uint coordinate = next_coordinate(rest, d);
    a += coordinate * p.a_stride[d];
    b += coordinate * p.b_stride[d];
    c += coordinate * p.c_stride[d];
  }
  store_y(i, load_c(c) != 0 ? load_a(a) : load_b(b));
}
