//! buffers: x:T:read dy:T:read stats:f32:read partial:f32:write
//! types: T = f32 f16
//! params: LayerNormParams
//! reference: none
//! local: 8,8
//! grid: 3d
#include "common/some.glsl"
layout(constant_id = 0) const uint FLAT = 0;  //! 0 1
layout(constant_id = 1) const uint RMS = 0;  //! 0 1

void stats(uint c, uint begin, uint end, uint at) {
  uint count = p.cols - c;
  vec4 product_lo = vec4(0.0), product_hi = product_lo, sum_lo = product_lo, sum_hi = product_lo;
  for (uint row = begin; row < end; ++row) {
    vec4 x_lo, x_hi, dy_lo, dy_hi;
    uint i = row * p.cols + c;
    if (FLAT == 1) {
      load8_x(i, x_lo, x_hi);
      load8_dy(i, dy_lo, dy_hi);
    } else {
      LOAD_SOME(load_x, i, count, x_lo, x_hi)
      LOAD_SOME(load_dy, i, count, dy_lo, dy_hi)
    }
    float first = RMS == 1 ? 0.0 : load_x(row * p.cols);
    float mean = load_stats(2 * row), rstd = load_stats(2 * row + 1);
    product_lo += dy_lo * ((x_lo - first - mean) * rstd);
    product_hi += dy_hi * ((x_hi - first - mean) * rstd);
    sum_lo += dy_lo;
    sum_hi += dy_hi;
  }
  STORE_SOME(store_partial, at, count, product_lo, product_hi)
  STORE_SOME(store_partial, at + p.cols, count, sum_lo, sum_hi)
}

void main() {
  uint c = gl_GlobalInvocationID.x * 8, chunk = gl_GlobalInvocationID.y;
  uint begin = chunk * p.chunk_rows, end = min(begin + p.chunk_rows, p.rows);
  if (c >= p.cols || begin >= p.rows) return;
  stats(c, begin, end, chunk * 2 * p.cols + c);
}
