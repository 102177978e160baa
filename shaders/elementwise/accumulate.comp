//! buffers: x:T:read y:f32:read_write
//! types: T = f32 f16
//! params: AccumulateParams
//! local: 64
#include "common/flat.glsl"

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n) return;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1])) {
    vec4 x_lo, x_hi, y_lo, y_hi;
    load8_x(i, x_lo, x_hi);
    load8_y(i, y_lo, y_hi);
    store8_y(i, y_lo + p.a * x_lo, y_hi + p.a * x_hi);
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) store_y(k, load_y(k) + p.a * load_x(k));
  }
}
