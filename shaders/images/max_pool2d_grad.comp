//! buffers: dy:T:read tap:I:read dx:T:write
//! types: T = f32 f16; I = u8 i32
//! params: PoolParams
//! local: 64
#include "images/pool.glsl"

// Returns the step of the window beginning at `first` that lies at input position x along one axis, or a step that no
// window has.
uint step_at(uint x, uint first, uint dilation) {
  uint reach = x - first, step = reach / dilation;
  return step * dilation == reach ? step : 0x10000u;
}

// Gathers: an input takes dy of every window that chose it.
void grad(Position at, bool whole, out vec4 dx_lo, out vec4 dx_hi) {
  dx_lo = dx_hi = vec4(0.0);
  uvec2 rows = windows_of_row(at.h), columns = windows_of_column(at.w);
  for (uint oh = rows.x; oh < rows.y; ++oh) {
    uint kh = step_at(at.h, first_row(oh), p.dilation_h);
    for (uint ow = columns.x; ow < columns.y; ++ow) {
      uint o = output_at(at, oh, ow);
      uint kw = step_at(at.w, first_column(ow), p.dilation_w);
      int tap = (kh | kw) < 0x10000u ? int(kh * p.kernel_w + kw) : -2;
      if (whole) {
        vec4 lo, hi;
        ivec4 tap_lo, tap_hi;
        load8_dy(o, lo, hi);
        load8_tap(o, tap_lo, tap_hi);
        dx_lo += mix(vec4(0.0), lo, equal(tap_lo, ivec4(tap)));
        dx_hi += mix(vec4(0.0), hi, equal(tap_hi, ivec4(tap)));
      } else if (load_tap(o) == tap) {
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
