//! buffers: x:T:read weight:f32:read bias:f32:read y:T:write stats:f32:write
//! types: T = f32 f16
//! params: LayerNormParams
//! reference: layer_norm
//! local: subgroup
//! grid: groups
//! requires: subgroup arithmetic shuffle
#define HAS_ARITHMETIC 1
#include "common/kept_rows.glsl"
layout(constant_id = 0) const uint RMS = 0;  //! 0 1

vec4 lo[MOST_ROUNDS], hi[MOST_ROUNDS];  // the row, then its deviations

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  uint start = row * p.cols;
  KEEP_ROW(load8_x, start, p.cols, 0.0, lo, hi)
  float mean = 0.0;
  if (RMS == 0) {
    float first = load_x(start);
    vec4 sums = vec4(0.0);
    FOR_ROUNDS(r) {
      bool inside = team_column(r) < p.cols;
      lo[r] = inside ? lo[r] - first : vec4(0.0);
      hi[r] = inside ? hi[r] - first : vec4(0.0);
      sums += lo[r] + hi[r];
    }
    mean = team_sum(sums) / p.cols;
  }
  vec4 squares = vec4(0.0);
  FOR_ROUNDS(r) {
    bool inside = team_column(r) < p.cols;
    lo[r] = inside ? lo[r] - mean : vec4(0.0);
    hi[r] = inside ? hi[r] - mean : vec4(0.0);
    vec4 scaled_lo = lo[r] * NORM_SCALE, scaled_hi = hi[r] * NORM_SCALE;
    squares += scaled_lo * scaled_lo + scaled_hi * scaled_hi;
  }
  float rstd = NORM_SCALE / sqrt(team_sum(squares) / p.cols + p.eps * NORM_SCALE * NORM_SCALE);
  FOR_ROUNDS(r) {
    uint c = team_column(r);
    if (c < p.cols) {
      vec4 weight_lo, weight_hi, bias_lo = vec4(0.0), bias_hi = bias_lo;
      load8_weight(c, weight_lo, weight_hi);
      if (RMS == 0) load8_bias(c, bias_lo, bias_hi);
      store8_y(start + c, lo[r] * rstd * weight_lo + bias_lo, hi[r] * rstd * weight_hi + bias_hi);
    }
  }
  if (team_column(0) != 0) return;
  store_stats(2 * row, mean);
  store_stats(2 * row + 1, rstd);
}
