//! buffers: x:T:read partial:f32:write first:f32:write
//! types: T = f32 f16
//! params: BatchNormParams
//! reference: none
//! local: 8,8
//! grid: 3d
#include "common/numbers.glsl"
#include "common/some.glsl"

layout(constant_id = 0) const uint WHOLE = 0;  //! 0 1
layout(constant_id = 1) const uint MEMBERS = 1;  //! 1 8

#define ROWS_AHEAD 4  // rows that are loaded at once

// The moments of 8 channels.
struct Moments {
  float count;
  vec4 mean_lo, mean_hi, squares_lo, squares_hi;
};

shared Moments moments[64];

void load_row(uint c, uint row, out vec4 lo, out vec4 hi) {
  uint at = row * p.channels + c;
  if (WHOLE == 1) {
    load8_x(at, lo, hi);
  } else {
    LOAD_SOME(load_x, at, p.channels - c, lo, hi)
  }
}

// Values that are not finite would make all differences from them NaN.
vec4 finite_or_zero(vec4 v) { return mix(v, vec4(0.0), greaterThanEqual(magnitude_bits(v), uvec4(0x7f800000u))); }

// Welford's update, row by row, which has no cancellation however large the mean is.
Moments of_rows(uint c, uint begin, uint end, vec4 first_lo, vec4 first_hi) {
  Moments m = Moments(0.0, vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
  for (uint first = begin; first < end; first += ROWS_AHEAD * MEMBERS) {
    vec4 lo[ROWS_AHEAD], hi[ROWS_AHEAD];
    [[unroll]] for (uint r = 0; r < ROWS_AHEAD; ++r) {
      load_row(c, min(first + r * MEMBERS, end - 1), lo[r], hi[r]);
    }
    [[unroll]] for (uint r = 0; r < ROWS_AHEAD; ++r) {
      if (first + r * MEMBERS < end) {
        lo[r] = (lo[r] - first_lo) * NORM_SCALE;
        hi[r] = (hi[r] - first_hi) * NORM_SCALE;
        m.count += 1.0;
        vec4 delta_lo = lo[r] - m.mean_lo, delta_hi = hi[r] - m.mean_hi;
        m.mean_lo += delta_lo * (1.0 / m.count);
        m.mean_hi += delta_hi * (1.0 / m.count);
        m.squares_lo += delta_lo * (lo[r] - m.mean_lo);
        m.squares_hi += delta_hi * (hi[r] - m.mean_hi);
      }
    }
  }
  return m;
}

// Joins two sets of moments (Chan et al. 1979).
Moments joined(Moments a, Moments b) {
  float count = a.count + b.count, share = b.count / count;
  vec4 delta_lo = b.mean_lo - a.mean_lo, delta_hi = b.mean_hi - a.mean_hi;
  return Moments(count, a.mean_lo + delta_lo * share, a.mean_hi + delta_hi * share,
                 a.squares_lo + (b.squares_lo + delta_lo * delta_lo * a.count * share),
                 a.squares_hi + (b.squares_hi + delta_hi * delta_hi * a.count * share));
}

void main() {
  uint c = gl_GlobalInvocationID.x * 8;
  uint chunk = gl_GlobalInvocationID.y / MEMBERS, member = gl_GlobalInvocationID.y % MEMBERS;
  uint begin = chunk * p.chunk_rows, end = min(begin + p.chunk_rows, p.rows);
  vec4 first_lo, first_hi;
  load_row(c < p.channels ? c : 0, 0, first_lo, first_hi);
  first_lo = finite_or_zero(first_lo);
  first_hi = finite_or_zero(first_hi);
  Moments all = of_rows(c < p.channels ? c : 0, begin + member, end, first_lo, first_hi);
  if (MEMBERS > 1) {
    moments[gl_LocalInvocationIndex] = all;
    barrier();
  }
  if (c >= p.channels || begin >= p.rows || member > 0) return;
  for (uint m = 1; m < MEMBERS; ++m) {
    Moments other = moments[8 * m + gl_LocalInvocationID.x];
    if (other.count > 0.0) all = joined(all, other);
  }
  uint at = chunk * 2 * p.channels + c;
  STORE_SOME(store_partial, at, p.channels - c, all.mean_lo, all.mean_hi)
  STORE_SOME(store_partial, at + p.channels, p.channels - c, all.squares_lo, all.squares_hi)
  if (chunk > 0) return;
  STORE_SOME(store_first, c, p.channels - c, first_lo, first_hi)
}
