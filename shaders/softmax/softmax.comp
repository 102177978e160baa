//! buffers: x:T:read y:U:write
//! types: T,U = f32,f32 f16,f16 f16,f32
//! params: SoftmaxParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "common/log_sum_exp.glsl"
layout(constant_id = 0) const uint LOG = 0;  //! 0 1

vec4 result(vec4 x, RowSum row) {
  vec4 shifted = x - row.top;
  return LOG == 1 ? shifted - row.log_total : exp(shifted) / row.total;
}

void main() {
  uint row = group_id();
  if (row >= p.rows) return;
  uint start = row * p.cols, words = word_columns(p.cols, p.offset[0] | p.offset[1]);
  RowSum s = row_sum(start, words);
  FOR_WORDS(c, words) {
    vec4 lo, hi;
    load8_x(start + c, lo, hi);
    store8_y(start + c, result(lo, s), result(hi, s));
  }
  FOR_OTHERS(c, words, p.cols) store_y(start + c, result(vec4(load_x(start + c)), s).x);
}
