//! buffers: dy:T:read index:i32:read last:i32:read y:U:read_write
//! types: T,U = f32,f32 f16,f32 i32,i32
//! params: RowsParams
//! local: 64
#include "common/flat.glsl"
layout(constant_id = 0) const bool UNIQUE = false;

void main() {
  uint n = p.n * p.width, begin = thread_id() * REWIND_FLAT;
  if (begin >= n) return;
  bool whole = is_whole(begin, n, p.width | p.offset[0] | p.offset[3]);
  for (uint k = begin; k < flat_end(begin, n); k += whole ? 8 : 1) {
    uint i = k / p.width, at = uint(load_index(i)) * p.width + (k - i * p.width);
    if (uint(load_index(i)) >= p.rows || !(UNIQUE || load_last(i) == 1)) continue;
    if (whole) {
      U_vec4 lo, hi;
      load8_dy(k, lo, hi);
      store8_y(at, lo, hi);
    } else {
      store_y(at, load_dy(k));
    }
  }
}
