//! buffers: x:T:read dy:T:read mean:f32:read var:f32:read weight:f32:read sums:f32:read dx:T:write
//! types: T = f32 f16
//! params: BatchNormParams
//! local: 64
#include "norm/batch_norm.glsl"

// dx = scale dy - (shift + slope (x - mean) inverse), where scale, shift and slope are the same for all rows. With given
// statistics it is scale dy, and x does not matter, even if it is NaN.
vec4 gradient(vec4 dy, vec4 x, vec4 mean, vec4 inverse, vec4 scale, vec4 shift, vec4 slope) {
  return p.train != 0 ? scale * dy - shift - slope * ((x - mean) * inverse) : scale * dy;
}

void grad8(uint c, uint begin, uint end) {
  vec4 mean_lo, mean_hi, inverse_lo, inverse_hi, scale_lo, scale_hi;
  vec4 slope_lo, slope_hi, shift_lo, shift_hi;
  load8_mean(c, mean_lo, mean_hi);
  load8_var(c, inverse_lo, inverse_hi);
  load8_weight(c, scale_lo, scale_hi);
  load8_sums(c, slope_lo, slope_hi);
  load8_sums(p.channels + c, shift_lo, shift_hi);
  inverse_lo = inverse_deviation(inverse_lo);
  inverse_hi = inverse_deviation(inverse_hi);
  scale_lo *= inverse_lo;
  scale_hi *= inverse_hi;
  float share = 1.0 / p.rows;
  slope_lo *= scale_lo * share;
  slope_hi *= scale_hi * share;
  shift_lo *= scale_lo * share;
  shift_hi *= scale_hi * share;
  if (p.has_rest != 0) {
    vec4 rest_lo, rest_hi;
    load8_mean(p.channels + c, rest_lo, rest_hi);
    shift_lo -= slope_lo * (rest_lo * inverse_lo);
    shift_hi -= slope_hi * (rest_hi * inverse_hi);
  }
  for (uint row = begin; row < end; ++row) {
    vec4 x_lo, x_hi, dy_lo, dy_hi;
    load8_x(row * p.channels + c, x_lo, x_hi);
    load8_dy(row * p.channels + c, dy_lo, dy_hi);
    store8_dx(row * p.channels + c, gradient(dy_lo, x_lo, mean_lo, inverse_lo, scale_lo, shift_lo, slope_lo),
              gradient(dy_hi, x_hi, mean_hi, inverse_hi, scale_hi, shift_hi, slope_hi));
  }
}

void grad1(uint c, uint begin, uint end) {
  float mean = load_mean(c), inverse = inverse_deviation(load_var(c));
  float scale = load_weight(c) * inverse, share = scale / p.rows;
  float slope = load_sums(c) * share, shift = load_sums(p.channels + c) * share;
  if (p.has_rest != 0) shift -= slope * (load_mean(p.channels + c) * inverse);
  for (uint row = begin; row < end; ++row) {
    uint i = row * p.channels + c;
    store_dx(i, gradient(vec4(load_dy(i)), vec4(load_x(i)), vec4(mean), vec4(inverse), vec4(scale), vec4(shift),
                         vec4(slope)).x);
  }
}

void main() {
  uint rows = p.n / p.channels, columns = (p.channels + 7) / 8;
  uint begin = thread_id() / columns * BATCH_NORM_ROWS, c = thread_id() % columns * 8;
  uint end = min(begin + BATCH_NORM_ROWS, rows);
  if (begin >= rows) return;
  uint offsets = p.offset[0] | p.offset[1] | p.offset[2] | p.offset[3] | p.offset[4] | p.offset[5];
  if (whole_channels(offsets | p.offset[6])) {
    grad8(c, begin, end);
  } else {
    for (uint k = c; k < min(c + 8, p.channels); ++k) grad1(k, begin, end);
  }
}
