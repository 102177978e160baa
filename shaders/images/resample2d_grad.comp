//! buffers: dy:T:read dx:T:write
//! types: T = f32 f16
//! params: ResampleParams
//! local: 64
#include "images/resample.glsl"

// Gathers: an input takes its share of every output that reads it.
void main() {
  uint n = p.batch * p.in_h * p.in_w * p.channels, i = thread_id() * (WHOLE == 1 ? 8 : 1);
  if (i >= n) return;
  Position at = position(i, p.in_h, p.in_w);
  ivec2 rows = readers_of(at.h, p.in_h, p.out_h, p.scale_h);
  ivec2 columns = readers_of(at.w, p.in_w, p.out_w, p.scale_w);
  vec4 dx_lo = vec4(0.0), dx_hi = dx_lo;
  for (int oh = rows.x; oh < rows.y; ++oh) {
    float row_weight = weight_at(taps_of(oh, p.in_h, p.scale_h), at.h, p.in_h);
    if (row_weight == 0.0) continue;
    for (int ow = columns.x; ow < columns.y; ++ow) {
      float weight = row_weight * weight_at(taps_of(ow, p.in_w, p.scale_w), at.w, p.in_w);
      if (weight == 0.0) continue;
      uint o = output_at(at, oh, ow);
      if (WHOLE == 1) {
        vec4 lo, hi;
        load8_dy(o, lo, hi);
        dx_lo += weight * lo;
        dx_hi += weight * hi;
      } else {
        dx_lo.x += weight * load_dy(o);
      }
    }
  }
  if (WHOLE == 1) {
    store8_dx(i, dx_lo, dx_hi);
  } else {
    store_dx(i, dx_lo.x);
  }
}
