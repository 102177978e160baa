//! buffers: x:T:read y:T:write
//! types: T = f32 f16
//! params: PoolParams
//! local: 64
#include "images/pool.glsl"

void pool(Position o, bool whole, out vec4 y_lo, out vec4 y_hi) {
  y_lo = y_hi = vec4(0.0);
  ivec3 rows = average_rows(o.h), columns = average_columns(o.w);
  for (int h = rows.x; h < rows.y; ++h) {
    for (int w = columns.x; w < columns.y; ++w) {
      uint at = input_at(o, h, w);
      if (whole) {
        vec4 lo, hi;
        load8_x(at, lo, hi);
        y_lo += lo;
        y_hi += hi;
      } else {
        y_lo.x += load_x(at);
      }
    }
  }
  float count = float(rows.z * columns.z);
  y_lo /= count;
  y_hi /= count;
}

void main() {
  uint n = p.batch * p.out_h * p.out_w * p.channels, i = thread_id() * REWIND_FLAT;
  if (i >= n) return;
  vec4 lo, hi;
  if (is_whole(i, n, p.channels | p.offset[0] | p.offset[1])) {
    pool(position(i, p.out_h, p.out_w), true, lo, hi);
    store8_y(i, lo, hi);
  } else {
    for (uint k = i; k < flat_end(i, n); ++k) {
      pool(position(k, p.out_h, p.out_w), false, lo, hi);
      store_y(k, lo.x);
    }
  }
}
