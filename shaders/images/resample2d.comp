//! buffers: x:T:read y:T:write
//! types: T = f32 f16
//! params: ResampleParams
//! local: 64
#include "images/resample.glsl"

void main() {
  uint n = p.batch * p.out_h * p.out_w * p.channels, i = thread_id() * (WHOLE == 1 ? 8 : 1);
  if (i >= n) return;
  Position o = position(i, p.out_h, p.out_w);
  Taps rows = taps_of(o.h, p.in_h, p.scale_h), columns = taps_of(o.w, p.in_w, p.scale_w);
  vec4 y_lo = vec4(0.0), y_hi = y_lo;
  for (uint kh = 0; kh < rows.count; ++kh) {
    for (uint kw = 0; kw < columns.count; ++kw) {
      uint at = input_at(o, tap_at(rows, kh, p.in_h), tap_at(columns, kw, p.in_w));
      float weight = rows.weight[kh] * columns.weight[kw];
      if (WHOLE == 1) {
        vec4 lo, hi;
        load8_x(at, lo, hi);
        y_lo += weight * lo;
        y_hi += weight * hi;
      } else {
        y_lo.x += weight * load_x(at);
      }
    }
  }
  if (WHOLE == 1) {
    store8_y(i, y_lo, y_hi);
  } else {
    store_y(i, y_lo.x);
  }
}
