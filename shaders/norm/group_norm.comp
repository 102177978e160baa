//! buffers: x:T:read stats:f32:read weight:f32:read bias:f32:read y:T:write
//! types: T = f32 f16
//! params: GroupNormParams
//! local: 64
#include "norm/group_norm.glsl"
#include "norm/group_moments.glsl"

void main() {
  Place at = place(GROUP_NORM_ROWS);
  if (at.sample_index >= p.samples) return;
  Moments m = moments_at(at);
  vec4 scale_lo, scale_hi, bias_lo, bias_hi;
  LOAD_CHANNELS(load8_weight, load_weight, at.c, at.c, scale_lo, scale_hi)
  LOAD_CHANNELS(load8_bias, load_bias, at.c, at.c, bias_lo, bias_hi)
  scale_lo *= m.rstd_lo;
  scale_hi *= m.rstd_hi;
  for (uint row = at.begin; row < at.end; ++row) {
    uint i = row * p.channels + at.c;
    vec4 lo, hi;
    LOAD_CHANNELS(load8_x, load_x, i, at.c, lo, hi)
    lo = (lo - m.first_lo - m.mean_lo) * scale_lo + bias_lo;
    hi = (hi - m.first_hi - m.mean_hi) * scale_hi + bias_hi;
    STORE_CHANNELS(store8_y, store_y, i, at.c, lo, hi)
  }
}
