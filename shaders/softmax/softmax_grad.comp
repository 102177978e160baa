//! buffers: y:T:read dy:T:read dx:U:write
//! types: T,U = f32,f32 f16,f16 f32,f16
//! params: SoftmaxParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "common/numbers.glsl"
#include "common/reduce.glsl"
#include "common/rows.glsl"
layout(constant_id = 0) const uint LOG = 0;  //! 0 1

vec4 term(vec4 y, vec4 dy) { return LOG == 1 ? dy : y * dy; }
vec4 result(vec4 y, vec4 dy, float total) {
  return LOG == 1 ? dy - exp(y) * total : y * (dy - total);
}

void main() {
  uint row = group_id();
  if (row >= p.rows) return;
  uint start = row * p.cols;
  uint words = word_columns(p.cols, p.offset[0] | p.offset[1] | p.offset[2]);
  vec4 y_lo, y_hi, dy_lo, dy_hi, sums = vec4(0.0);
  FOR_WORDS(c, words) {
    load8_y(start + c, y_lo, y_hi);
    load8_dy(start + c, dy_lo, dy_hi);
    sums += term(y_lo, dy_lo) + term(y_hi, dy_hi);
  }
  FOR_OTHERS(c, words, p.cols) {
    sums.x += term(vec4(load_y(start + c)), vec4(load_dy(start + c))).x;
  }
  float total = workgroup_sum((sums.x + sums.y) + (sums.z + sums.w));
  FOR_WORDS(c, words) {
    load8_y(start + c, y_lo, y_hi);
    load8_dy(start + c, dy_lo, dy_hi);
    store8_dx(start + c, result(y_lo, dy_lo, total), result(y_hi, dy_hi, total));
  }
  FOR_OTHERS(c, words, p.cols) {
    store_dx(start + c, result(vec4(load_y(start + c)), vec4(load_dy(start + c)), total).x);
  }
}
