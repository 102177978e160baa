//! buffers: x:T:read dy:T:read stats:f32:read weight:f32:read sums:f32:read dx:T:write
//! types: T = f32 f16
//! params: GroupNormParams
//! local: 64
#include "norm/group_norm.glsl"
#include "norm/group_moments.glsl"

void main() {
  Place at = place(GROUP_NORM_ROWS);
  if (at.sample_index >= p.samples) return;
  Moments m = moments_at(at);
  // dx = scale dy - (shift + slope xhat), where scale, shift and slope are the same for all rows.
  vec4 scale_lo, scale_hi, slope_lo, slope_hi, shift_lo, shift_hi;
  LOAD_CHANNELS(load8_weight, load_weight, at.c, at.c, scale_lo, scale_hi)
  uint groups = p.channels / p.width, first = at.sample_index * 2 * groups;
  [[unroll]] for (uint k = 0; k < 4; ++k) {
    uint lo = first + group_of(at.c + k), hi = first + group_of(at.c + k + 4);
    slope_lo[k] = load_sums(lo);
    slope_hi[k] = load_sums(hi);
    shift_lo[k] = load_sums(lo + groups);
    shift_hi[k] = load_sums(hi + groups);
  }
  float share = 1.0 / (float(p.rows) * float(p.width));
  scale_lo *= m.rstd_lo;
  scale_hi *= m.rstd_hi;
  slope_lo *= m.rstd_lo * share;
  slope_hi *= m.rstd_hi * share;
  shift_lo *= m.rstd_lo * share;
  shift_hi *= m.rstd_hi * share;
  for (uint row = at.begin; row < at.end; ++row) {
    uint i = row * p.channels + at.c;
    vec4 lo, hi, dy_lo, dy_hi;
    LOAD_CHANNELS(load8_x, load_x, i, at.c, lo, hi)
    LOAD_CHANNELS(load8_dy, load_dy, i, at.c, dy_lo, dy_hi)
    dy_lo = scale_lo * dy_lo - shift_lo - slope_lo * ((lo - m.first_lo - m.mean_lo) * m.rstd_lo);
    dy_hi = scale_hi * dy_hi - shift_hi - slope_hi * ((hi - m.first_hi - m.mean_hi) * m.rstd_hi);
    STORE_CHANNELS(store8_dx, store_dx, i, at.c, dy_lo, dy_hi)
  }
}
