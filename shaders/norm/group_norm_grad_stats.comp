//! buffers: x:T:read dy:T:read stats:f32:read partial:f32:write
//! types: T = f32 f16
//! params: GroupNormParams
//! local: 64
#include "norm/group_norm.glsl"
#include "norm/group_moments.glsl"

void main() {
  Place at = place(p.chunk_rows);
  if (at.sample_index >= p.samples) return;
  Moments m = moments_at(at);
  vec4 product_lo = vec4(0.0), product_hi = product_lo, sum_lo = product_lo, sum_hi = product_lo;
  for (uint row = at.begin; row < at.end; ++row) {
    uint i = row * p.channels + at.c;
    vec4 lo, hi, dy_lo, dy_hi;
    LOAD_CHANNELS(load8_x, load_x, i, at.c, lo, hi)
    LOAD_CHANNELS(load8_dy, load_dy, i, at.c, dy_lo, dy_hi)
    product_lo += dy_lo * (lo - m.first_lo - m.mean_lo);
    product_hi += dy_hi * (hi - m.first_hi - m.mean_hi);
    sum_lo += dy_lo;
    sum_hi += dy_hi;
  }
  product_lo *= m.rstd_lo;
  product_hi *= m.rstd_hi;
  uint chunks = (p.rows + p.chunk_rows - 1) / p.chunk_rows;
  uint o = (at.sample_index * chunks + at.part) * 2 * p.channels + at.c;
  STORE_CHANNELS(store8_partial, store_partial, o, at.c, product_lo, product_hi)
  STORE_CHANNELS(store8_partial, store_partial, o + p.channels, at.c, sum_lo, sum_hi)
}
