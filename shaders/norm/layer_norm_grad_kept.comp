//! buffers: x:T:read dy:T:read weight:f32:read stats:f32:read dx:T:write
//! types: T = f32 f16
//! params: LayerNormParams
//! reference: layer_norm_grad
//! local: subgroup
//! grid: groups
//! requires: subgroup arithmetic shuffle
#define HAS_ARITHMETIC 1
#include "common/kept_rows.glsl"
layout(constant_id = 0) const uint RMS = 0;  //! 0 1

vec4 xhat_lo[MOST_ROUNDS], xhat_hi[MOST_ROUNDS];
vec4 g_lo[MOST_ROUNDS], g_hi[MOST_ROUNDS];  // the gradient of xhat

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  uint start = row * p.cols;
  float first = RMS == 1 ? 0.0 : load_x(start);
  float mean = load_stats(2 * row), rstd = load_stats(2 * row + 1);
  KEEP_ROW(load8_x, start, p.cols, mean, xhat_lo, xhat_hi)
  KEEP_ROW(load8_dy, start, p.cols, 0.0, g_lo, g_hi)
  vec4 sums = vec4(0.0), products = sums;
  FOR_ROUNDS(r) {
    vec4 weight_lo, weight_hi;
    load8_weight(min(team_column(r), p.cols - 8), weight_lo, weight_hi);
    g_lo[r] *= weight_lo;
    g_hi[r] *= weight_hi;
    xhat_lo[r] = (xhat_lo[r] - first - mean) * rstd;
    xhat_hi[r] = (xhat_hi[r] - first - mean) * rstd;
    if (team_column(r) >= p.cols) g_lo[r] = g_hi[r] = xhat_lo[r] = xhat_hi[r] = vec4(0.0);
    sums += g_lo[r] + g_hi[r];
    products += g_lo[r] * xhat_lo[r] + g_hi[r] * xhat_hi[r];
  }
  float shift = RMS == 1 ? 0.0 : team_sum(sums) / p.cols, slope = team_sum(products) / p.cols;
  FOR_ROUNDS(r) {
    uint c = team_column(r);
    if (c < p.cols)
      store8_dx(start + c, rstd * (g_lo[r] - shift - slope * xhat_lo[r]),
                rstd * (g_hi[r] - shift - slope * xhat_hi[r]));
  }
}
