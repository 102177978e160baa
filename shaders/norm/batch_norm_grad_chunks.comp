//! buffers: x:T:read dy:T:read mean:f32:read var:f32:read partial:f32:write
//! types: T = f32 f16
//! params: BatchNormParams
//! reference: none
//! local: 8,8
//! grid: 3d
#include "norm/batch_norm.glsl"
#include "common/some.glsl"

layout(constant_id = 0) const uint WHOLE = 0;  //! 0 1
layout(constant_id = 1) const uint MEMBERS = 1;  //! 1 8

#define ROWS_AHEAD 2  // rows that are loaded at once

// The sums of 8 channels: those of dy * (x - mean), and of dy.
struct Sums {
  vec4 product_lo, product_hi, sum_lo, sum_hi;
};

shared Sums sums[64];

Sums of_rows(uint c, uint begin, uint end) {
  uint count = p.channels - c;
  vec4 mean_lo, mean_hi;
  LOAD_SOME(load_mean, c, count, mean_lo, mean_hi)
  Sums s = Sums(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
  for (uint first = begin; first < end; first += ROWS_AHEAD * MEMBERS) {
    vec4 x_lo[ROWS_AHEAD], x_hi[ROWS_AHEAD], dy_lo[ROWS_AHEAD], dy_hi[ROWS_AHEAD];
    [[unroll]] for (uint r = 0; r < ROWS_AHEAD; ++r) {
      uint i = min(first + r * MEMBERS, end - 1) * p.channels + c;
      if (WHOLE == 1) {
        load8_x(i, x_lo[r], x_hi[r]);
        load8_dy(i, dy_lo[r], dy_hi[r]);
      } else {
        LOAD_SOME(load_x, i, count, x_lo[r], x_hi[r])
        LOAD_SOME(load_dy, i, count, dy_lo[r], dy_hi[r])
      }
    }
    [[unroll]] for (uint r = 0; r < ROWS_AHEAD; ++r) {
      if (first + r * MEMBERS < end) {
        s.product_lo += dy_lo[r] * (x_lo[r] - mean_lo);
        s.product_hi += dy_hi[r] * (x_hi[r] - mean_hi);
        s.sum_lo += dy_lo[r];
        s.sum_hi += dy_hi[r];
      }
    }
  }
  return s;
}

void main() {
  uint c = gl_GlobalInvocationID.x * 8;
  uint chunk = gl_GlobalInvocationID.y / MEMBERS, member = gl_GlobalInvocationID.y % MEMBERS;
  uint begin = chunk * p.chunk_rows, end = min(begin + p.chunk_rows, p.rows);
  Sums all = of_rows(c < p.channels ? c : 0, begin + member, end);
  if (MEMBERS > 1) {
    sums[gl_LocalInvocationIndex] = all;
    barrier();
  }
  if (c >= p.channels || begin >= p.rows || member > 0) return;
  for (uint m = 1; m < MEMBERS; ++m) {
    Sums other = sums[8 * m + gl_LocalInvocationID.x];
    all.product_lo += other.product_lo;
    all.product_hi += other.product_hi;
    all.sum_lo += other.sum_lo;
    all.sum_hi += other.sum_hi;
  }
  uint count = p.channels - c, at = chunk * 2 * p.channels + c;
  if (p.has_rest != 0) {
    vec4 rest_lo, rest_hi;
    LOAD_SOME(load_mean, p.channels + c, count, rest_lo, rest_hi)
    all.product_lo -= rest_lo * all.sum_lo;
    all.product_hi -= rest_hi * all.sum_hi;
  }
  vec4 var_lo, var_hi;
  LOAD_SOME(load_var, c, count, var_lo, var_hi)
  all.product_lo *= inverse_deviation(var_lo);
  all.product_hi *= inverse_deviation(var_hi);
  STORE_SOME(store_partial, at, count, all.product_lo, all.product_hi)
  STORE_SOME(store_partial, at + p.channels, count, all.sum_lo, all.sum_hi)
}
