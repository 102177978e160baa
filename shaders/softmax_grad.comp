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

struct Columns {
  vec4 y_lo, y_hi, dy_lo, dy_hi;
};

// Columns c to c + 7 of the row at `start`; 0 past the end.
Columns load_columns(uint start, uint c, bool whole) {
  Columns v = Columns(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
  if (whole) {
    load8_y(start + c, v.y_lo, v.y_hi);
    load8_dy(start + c, v.dy_lo, v.dy_hi);
  } else {
    LOAD_SOME(load_y, start + c, p.cols - c, v.y_lo, v.y_hi)
    LOAD_SOME(load_dy, start + c, p.cols - c, v.dy_lo, v.dy_hi)
  }
  return v;
}

void main() {
  uint row = group_id();
  if (row >= p.rows) return;
  uint start = row * p.cols;
  bool whole = whole_rows(p.cols, p.offset[0] | p.offset[1] | p.offset[2]);

  vec4 total4 = vec4(0.0);
  FOR_COLUMNS(c, p.cols) {
    Columns v = load_columns(start, c, whole);
    total4 += term(v.y_lo, v.dy_lo) + term(v.y_hi, v.dy_hi);
  }
  float total = workgroup_sum((total4.x + total4.y) + (total4.z + total4.w));

  FOR_COLUMNS(c, p.cols) {
    Columns v = load_columns(start, c, whole);
    vec4 lo = result(v.y_lo, v.dy_lo, total), hi = result(v.y_hi, v.dy_hi, total);
    if (whole) {
      store8_dx(start + c, lo, hi);
    } else {
      STORE_SOME(store_dx, start + c, p.cols - c, lo, hi)
    }
  }
}
