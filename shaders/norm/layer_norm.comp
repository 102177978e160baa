//! buffers: x:T:read weight:f32:read bias:f32:read y:T:write stats:f32:write
//! types: T = f32 f16
//! params: LayerNormParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "common/reduce.glsl"
#include "common/rows.glsl"
layout(constant_id = 0) const uint RMS = 0;  //! 0 1

float total(vec4 v) { return workgroup_sum((v.x + v.y) + (v.z + v.w)); }

float row_mean(uint start, uint words, float first) {
  vec4 sums = vec4(0.0), lo, hi;
  FOR_WORDS(c, words) {
    load8_x(start + c, lo, hi);
    sums += (lo - first) + (hi - first);
  }
  FOR_OTHERS(c, words, p.cols) sums.x += load_x(start + c) - first;
  return total(sums) / p.cols;
}

// Returns the mean of the squares of NORM_SCALE times the deviations. A second pass over the row loses nothing if the
// mean is large.
float row_variance(uint start, uint words, float first, float mean) {
  vec4 sums = vec4(0.0), lo, hi;
  FOR_WORDS(c, words) {
    load8_x(start + c, lo, hi);
    lo = (lo - first - mean) * NORM_SCALE;
    hi = (hi - first - mean) * NORM_SCALE;
    sums += lo * lo + hi * hi;
  }
  FOR_OTHERS(c, words, p.cols) {
    float d = (load_x(start + c) - first - mean) * NORM_SCALE;
    sums.x += d * d;
  }
  return total(sums) / p.cols;
}

vec4 result(vec4 x, float first, float mean, float rstd, vec4 weight, vec4 bias) {
  vec4 y = (x - first - mean) * rstd * weight;
  return RMS == 1 ? y : y + bias;
}

void main() {
  uint row = group_id();
  if (row >= p.rows) return;
  uint start = row * p.cols;
  uint words = word_columns(p.cols, p.offset[0] | p.offset[1] | p.offset[2] | p.offset[3]);
  float first = RMS == 1 ? 0.0 : load_x(start);
  float mean = RMS == 1 ? 0.0 : row_mean(start, words, first);
  float rstd = NORM_SCALE / sqrt(row_variance(start, words, first, mean) + p.eps * NORM_SCALE * NORM_SCALE);
  FOR_WORDS(c, words) {
    vec4 lo, hi, weight_lo, weight_hi, bias_lo, bias_hi;
    load8_x(start + c, lo, hi);
    load8_weight(c, weight_lo, weight_hi);
    load8_bias(c, bias_lo, bias_hi);
    store8_y(start + c, result(lo, first, mean, rstd, weight_lo, bias_lo),
             result(hi, first, mean, rstd, weight_hi, bias_hi));
  }
  FOR_OTHERS(c, words, p.cols) {
    vec4 weight = vec4(load_weight(c)), bias = vec4(load_bias(c));
    store_y(start + c, result(vec4(load_x(start + c)), first, mean, rstd, weight, bias).x);
  }
  if (gl_LocalInvocationID.x != 0) return;
  store_stats(2 * row, mean);
  store_stats(2 * row + 1, rstd);
}
