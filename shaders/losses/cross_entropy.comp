//! buffers: x:T:read target:i32:read loss:f32:write lse:f32:write
//! types: T = f32 f16
//! params: ClassLossParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "common/log_sum_exp.glsl"

float row_mean(uint start, uint words) {
  vec4 total = vec4(0.0);
  FOR_WORDS(c, words) {
    vec4 lo, hi;
    load8_x(start + c, lo, hi);
    total += lo + hi;
  }
  FOR_OTHERS(c, words, p.cols) total.x += load_x(start + c);
  return workgroup_sum((total.x + total.y) + (total.z + total.w)) / p.cols;
}

void main() {
  uint row = group_id();
  if (row >= p.rows) return;
  uint start = row * p.cols, words = word_columns(p.cols, p.offset[0]);
  RowSum s = row_sum(start, words);
  float lse = s.top + s.log_total;
  // The term is left out for a smoothing of 0, since 0 * (lse - mean) is NaN if a logit is -inf.
  float smooth_part = p.smoothing == 0.0 ? 0.0 : p.smoothing * (lse - row_mean(start, words));
  if (gl_LocalInvocationID.x != 0) return;
  int t = load_target(row);
  float loss = NAN;
  if (t == p.ignore_index) {
    loss = 0.0;
  } else if (t >= 0 && t < int(p.cols)) {
    loss = (1.0 - p.smoothing) * (lse - load_x(start + t)) + smooth_part;
  }
  store_loss(row, loss);
  store_lse(row, lse);
}
