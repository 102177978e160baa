//! buffers: dy:T:read index:i32:read dx:T:write
//! types: T = f32 f16
//! params: PoolParams
//! local: 64
#include "pool.glsl"

// Gathers: an input takes dy of every window that chose it.
void grad(Position at, bool whole, out vec4 dx_lo, out vec4 dx_hi) {
  dx_lo = dx_hi = vec4(0.0);
  int chosen = int(at.h * p.in_w + at.w);
  uvec2 rows = windows_of_row(at.h), columns = windows_of_column(at.w);
  for (uint oh = rows.x; oh < rows.y; ++oh) {
    for (uint ow = columns.x; ow < columns.y; ++ow) {
      uint o = output_at(at, oh, ow);
      if (whole) {
        vec4 lo, hi;
        ivec4 index_lo, index_hi;
        load8_dy(o, lo, hi);
        load8_index(o, index_lo, index_hi);
        dx_lo += mix(vec4(0.0), lo, equal(index_lo, ivec4(chosen)));
        dx_hi += mix(vec4(0.0), hi, equal(index_hi, ivec4(chosen)));
      } else if (load_index(o) == chosen) {
        dx_lo.x += load_dy(o);
      }
    }
  }
}

void main() {
  uint n = p.batch * p.in_h * p.in_w * p.channels, i = thread_id() * REWIND_FLAT;
  if (i >= n) return;
  vec4 lo, hi;
  if (is_whole(i, n, p.channels | p.offset[0] | p.offset[1] | p.offset[2])) {
    grad(position(i, p.in_h, p.in_w), true, lo, hi);
    store8_dx(i, lo, hi);
  } else {
    for (uint k = i; k < flat_end(i, n); ++k) {
      grad(position(k, p.in_h, p.in_w), false, lo, hi);
      store_dx(k, lo.x);
    }
  }
}
