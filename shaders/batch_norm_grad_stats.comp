//! buffers: x:T:read dy:T:read mean:f32:read var:f32:read partial:f32:write
//! types: T = f32 f16
//! params: BatchNormGradStatsParams
//! local: 8,8
//! grid: 3d
//! texels: yes
#include "batch_norm.glsl"
#include "some.glsl"

void stats(uint c, uint begin, uint end, uint at, bool whole) {
  uint count = p.channels - c;
  vec4 mean_lo = vec4(0.0), mean_hi = mean_lo, var_lo = mean_lo, var_hi = mean_lo;
  LOAD_SOME(load_mean, c, count, mean_lo, mean_hi)
  LOAD_SOME(load_var, c, count, var_lo, var_hi)
  vec4 product_lo = vec4(0.0), product_hi = product_lo, sum_lo = product_lo, sum_hi = product_lo;
  for (uint row = begin; row < end; ++row) {
    vec4 x_lo = mean_lo, x_hi = mean_hi, dy_lo = vec4(0.0), dy_hi = dy_lo;
    uint i = row * p.channels + c;
    if (whole) {
      load8_x(i, x_lo, x_hi);
      load8_dy(i, dy_lo, dy_hi);
    } else {
      LOAD_SOME(load_x, i, count, x_lo, x_hi)
      LOAD_SOME(load_dy, i, count, dy_lo, dy_hi)
    }
    product_lo += dy_lo * (x_lo - mean_lo);
    product_hi += dy_hi * (x_hi - mean_hi);
    sum_lo += dy_lo;
    sum_hi += dy_hi;
  }
  product_lo *= inverse_deviation(var_lo);
  product_hi *= inverse_deviation(var_hi);
  STORE_SOME(store_partial, at, count, product_lo, product_hi)
  STORE_SOME(store_partial, at + p.channels, count, sum_lo, sum_hi)
}

void main() {
  uint c = gl_GlobalInvocationID.x * 8, chunk = gl_GlobalInvocationID.y;
  uint begin = chunk * p.chunk_rows, end = min(begin + p.chunk_rows, p.rows);
  if (c >= p.channels || begin >= p.rows) return;
  uint at = chunk * 2 * p.channels + c;
  stats(c, begin, end, at, whole_channels(p.offset[0] | p.offset[1]));
}
