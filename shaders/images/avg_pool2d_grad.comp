//! buffers: dy:T:read dx:T:write
//! types: T = f32 f16
//! params: PoolParams
//! local: 64
#include "images/pool.glsl"

// Gathers: an input takes its share of every window that covers it.
void grad(Position at, bool whole, out vec4 dx_lo, out vec4 dx_hi) {
  dx_lo = dx_hi = vec4(0.0);
  uvec2 rows = windows_of_row(at.h), columns = windows_of_column(at.w);
  for (uint oh = rows.x; oh < rows.y; ++oh) {
    for (uint ow = columns.x; ow < columns.y; ++ow) {
      uint o = output_at(at, oh, ow);
      float count = float(average_rows(oh).z * average_columns(ow).z);
      if (whole) {
        vec4 lo, hi;
        load8_dy(o, lo, hi);
        dx_lo += lo / count;
        dx_hi += hi / count;
      } else {
        dx_lo.x += load_dy(o) / count;
      }
    }
  }
}

void main() {
  uint n = p.batch * p.in_h * p.in_w * p.channels, i = thread_id() * REWIND_FLAT;
  if (i >= n) return;
  vec4 lo, hi;
  if (is_whole(i, n, p.channels | p.offset[0] | p.offset[1])) {
    grad(position(i, p.in_h, p.in_w), true, lo, hi);
    store8_dx(i, lo, hi);
  } else {
    for (uint k = i; k < flat_end(i, n); ++k) {
      grad(position(k, p.in_h, p.in_w), false, lo, hi);
      store_dx(k, lo.x);
    }
  }
}
