//! buffers: x:T:read dy:T:read mean:f32:read var:f32:read partial:f32:write
//! types: T = f32 f16
//! params: BatchNormGradStatsParams
//! local: 8,8
//! grid: 3d
//! texels: yes
#include "batch_norm.glsl"
#include "some.glsl"

layout(constant_id = 0) const uint WHOLE = 0;  //! 0 1

#define ROWS_AHEAD 2  // that are loaded at once

void stats(uint c, uint begin, uint end, uint at) {
  uint count = p.channels - c;
  vec4 mean_lo, mean_hi, var_lo, var_hi;
  LOAD_SOME(load_mean, c, count, mean_lo, mean_hi)
  LOAD_SOME(load_var, c, count, var_lo, var_hi)
  vec4 product_lo = vec4(0.0), product_hi = product_lo, sum_lo = product_lo, sum_hi = product_lo;
  for (uint first = begin; first < end; first += ROWS_AHEAD) {
    vec4 x_lo[ROWS_AHEAD], x_hi[ROWS_AHEAD], dy_lo[ROWS_AHEAD], dy_hi[ROWS_AHEAD];
    [[unroll]] for (uint r = 0; r < ROWS_AHEAD; ++r) {
      uint i = min(first + r, end - 1) * p.channels + c;
      if (WHOLE == 1) {
        load8_x(i, x_lo[r], x_hi[r]);
        load8_dy(i, dy_lo[r], dy_hi[r]);
      } else {
        LOAD_SOME(load_x, i, count, x_lo[r], x_hi[r])
        LOAD_SOME(load_dy, i, count, dy_lo[r], dy_hi[r])
      }
    }
    [[unroll]] for (uint r = 0; r < ROWS_AHEAD; ++r) {
      if (first + r < end) {
        product_lo += dy_lo[r] * (x_lo[r] - mean_lo);
        product_hi += dy_hi[r] * (x_hi[r] - mean_hi);
        sum_lo += dy_lo[r];
        sum_hi += dy_hi[r];
      }
    }
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
  stats(c, begin, end, at);
}
