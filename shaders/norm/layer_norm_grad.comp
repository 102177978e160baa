//! buffers: x:T:read dy:T:read weight:f32:read stats:f32:read dx:T:write
//! types: T = f32 f16
//! params: LayerNormParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "common/reduce.glsl"
#include "common/rows.glsl"
layout(constant_id = 0) const uint RMS = 0;  //! 0 1

// Four columns of the gradient of xhat, and of xhat.
struct Columns {
  vec4 g, xhat;
};

void columns8(uint start, uint c, float first, float mean, float rstd, out Columns lo, out Columns hi) {
  vec4 weight_lo, weight_hi;
  load8_weight(c, weight_lo, weight_hi);
  load8_dy(start + c, lo.g, hi.g);
  load8_x(start + c, lo.xhat, hi.xhat);
  lo.g *= weight_lo;
  hi.g *= weight_hi;
  lo.xhat = (lo.xhat - first - mean) * rstd;
  hi.xhat = (hi.xhat - first - mean) * rstd;
}

Columns column(uint start, uint c, float first, float mean, float rstd) {
  return Columns(vec4(load_dy(start + c) * load_weight(c)),
                 vec4((load_x(start + c) - first - mean) * rstd));
}

float total(vec4 v) { return workgroup_sum((v.x + v.y) + (v.z + v.w)); }

void main() {
  uint row = group_id();
  if (row >= p.rows) return;
  uint start = row * p.cols;
  uint words = word_columns(p.cols, p.offset[0] | p.offset[1] | p.offset[2] | p.offset[4]);
  float first = RMS == 1 ? 0.0 : load_x(start);
  float mean = load_stats(2 * row), rstd = load_stats(2 * row + 1);
  Columns lo, hi;
  vec4 sums = vec4(0.0), products = vec4(0.0);
  FOR_WORDS(c, words) {
    columns8(start, c, first, mean, rstd, lo, hi);
    sums += lo.g + hi.g;
    products += lo.g * lo.xhat + hi.g * hi.xhat;
  }
  FOR_OTHERS(c, words, p.cols) {
    lo = column(start, c, first, mean, rstd);
    sums.x += lo.g.x;
    products.x += lo.g.x * lo.xhat.x;
  }
  float shift = RMS == 1 ? 0.0 : total(sums) / p.cols, slope = total(products) / p.cols;
  FOR_WORDS(c, words) {
    columns8(start, c, first, mean, rstd, lo, hi);
    store8_dx(start + c, rstd * (lo.g - shift - slope * lo.xhat),
              rstd * (hi.g - shift - slope * hi.xhat));
  }
  FOR_OTHERS(c, words, p.cols) {
    lo = column(start, c, first, mean, rstd);
    store_dx(start + c, rstd * (lo.g.x - shift - slope * lo.xhat.x));
  }
}
