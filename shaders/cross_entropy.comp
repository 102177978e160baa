//! buffers: x:T:read target:i32:read loss:f32:write lse:f32:write
//! types: T = f32 f16
//! params: CrossEntropyParams
//! local: subgroup
//! grid: groups
//! requires: subgroup arithmetic
#include "log_sum_exp.glsl"

float row_mean(uint start, bool whole) {
  float total = 0.0;
  FOR_COLUMNS(c, p.cols) {
    vec4 lo = vec4(0.0), hi = lo;
    if (whole) {
      load8_x(start + c, lo, hi);
    } else {
      LOAD_SOME(load_x, start + c, p.cols - c, lo, hi)
    }
    lo += hi;
    total += (lo.x + lo.y) + (lo.z + lo.w);
  }
  return workgroup_sum(total) / p.cols;
}

void main() {
  uint row = group_id();
  if (row >= p.rows) return;
  uint start = row * p.cols;
  bool whole = whole_rows(p.cols, p.offset[0]);
  RowSum s = row_sum(start, whole);
  float lse = s.top + log(s.total);
  // Not added when 0: 0 * (lse - mean) is NaN where a logit is -inf.
  float smooth_part = p.smoothing == 0.0 ? 0.0 : p.smoothing * (lse - row_mean(start, whole));
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
