//! buffers: y:T:read dy:T:read dx:U:write
//! types: T,U = f32,f32 f16,f16 f32,f16
//! params: SoftmaxGradParams
//! local: subgroup
//! grid: groups
//! requires: subgroup arithmetic
#include "reduce.glsl"
#include "rows.glsl"
layout(constant_id = 0) const uint LOG = 0;

vec4 term(vec4 y, vec4 dy) { return LOG == 1 ? dy : y * dy; }
vec4 result(vec4 y, vec4 dy, float total) {
  return LOG == 1 ? dy - exp(y) * total : y * (dy - total);
}

float row_total(uint start, bool whole) {
  vec4 total = vec4(0.0);
  FOR_COLUMNS(c, p.cols) {
    if (whole) {
      vec4 y_lo, y_hi, dy_lo, dy_hi;
      load8_y(start + c, y_lo, y_hi);
      load8_dy(start + c, dy_lo, dy_hi);
      total += term(y_lo, dy_lo) + term(y_hi, dy_hi);
    } else {
      for (uint k = start + c; k < start + min(c + 8, p.cols); ++k)
        total.x += term(vec4(load_y(k)), vec4(load_dy(k))).x;
    }
  }
  return workgroup_sum((total.x + total.y) + (total.z + total.w));
}

void main() {
  uint row = group_id();
  if (row >= p.rows) return;
  uint start = row * p.cols;
  bool whole = whole_rows(p.cols, p.offset[0] | p.offset[1] | p.offset[2]);
  float total = row_total(start, whole);
  FOR_COLUMNS(c, p.cols) {
    if (whole) {
      vec4 y_lo, y_hi, dy_lo, dy_hi;
      load8_y(start + c, y_lo, y_hi);
      load8_dy(start + c, dy_lo, dy_hi);
      store8_dx(start + c, result(y_lo, dy_lo, total), result(y_hi, dy_hi, total));
    } else {
      for (uint k = start + c; k < start + min(c + 8, p.cols); ++k)
        store_dx(k, result(vec4(load_y(k)), vec4(load_dy(k)), total).x);
    }
  }
}
