//! buffers: x:T:read dy:T:read mean:f32:read var:f32:read partial:f32:write
//! types: T = f32 f16
//! params: BatchNormGradStatsParams
//! local: 8,8
//! grid: 3d
#include "batch_norm.glsl"

void stats8(uint c, uint begin, uint end, uint at) {
  vec4 mean_lo, mean_hi, var_lo, var_hi;
  load8_mean(c, mean_lo, mean_hi);
  load8_var(c, var_lo, var_hi);
  vec4 product_lo = vec4(0.0), product_hi = product_lo, sum_lo = product_lo, sum_hi = product_lo;
  for (uint row = begin; row < end; ++row) {
    vec4 x_lo, x_hi, dy_lo, dy_hi;
    load8_x(row * p.channels + c, x_lo, x_hi);
    load8_dy(row * p.channels + c, dy_lo, dy_hi);
    product_lo += dy_lo * (x_lo - mean_lo);
    product_hi += dy_hi * (x_hi - mean_hi);
    sum_lo += dy_lo;
    sum_hi += dy_hi;
  }
  store8_partial(at, product_lo * inverse_deviation(var_lo), product_hi * inverse_deviation(var_hi));
  store8_partial(at + p.channels, sum_lo, sum_hi);
}

void stats1(uint c, uint begin, uint end, uint at) {
  float mean = load_mean(c), product = 0.0, sum = 0.0;
  for (uint row = begin; row < end; ++row) {
    uint i = row * p.channels + c;
    float dy = load_dy(i);
    product += dy * (load_x(i) - mean);
    sum += dy;
  }
  store_partial(at, product * inverse_deviation(load_var(c)));
  store_partial(at + p.channels, sum);
}

void main() {
  uint c = gl_GlobalInvocationID.x * 8, chunk = gl_GlobalInvocationID.y;
  uint begin = chunk * p.chunk_rows, end = min(begin + p.chunk_rows, p.rows);
  if (c >= p.channels || begin >= p.rows) return;
  uint at = chunk * 2 * p.channels + c;
  if (whole_channels(p.offset[0] | p.offset[1] | p.offset[2] | p.offset[3] | p.offset[4])) {
    stats8(c, begin, end, at);
  } else {
    for (uint k = 0; k < min(8, p.channels - c); ++k) stats1(c + k, begin, end, at + k);
  }
}
