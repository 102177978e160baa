// The body of batch_norm, whose results go through AFTER and AFTER8.
#include "norm/batch_norm.glsl"

void normalize8(uint c, uint begin, uint end) {
  vec4 mean_lo, mean_hi, scale_lo, scale_hi, bias_lo, bias_hi, weight_lo, weight_hi;
  load8_mean(c, mean_lo, mean_hi);
  load8_var(c, scale_lo, scale_hi);
  load8_weight(c, weight_lo, weight_hi);
  load8_bias(c, bias_lo, bias_hi);
  scale_lo = weight_lo * inverse_deviation(scale_lo);
  scale_hi = weight_hi * inverse_deviation(scale_hi);
  if (p.has_rest != 0) {
    vec4 rest_lo, rest_hi;
    load8_mean(p.channels + c, rest_lo, rest_hi);
    bias_lo -= rest_lo * scale_lo;
    bias_hi -= rest_hi * scale_hi;
  }
  for (uint row = begin; row < end; ++row) {
    vec4 lo, hi;
    load8_x(row * p.channels + c, lo, hi);
    lo = (lo - mean_lo) * scale_lo + bias_lo;
    hi = (hi - mean_hi) * scale_hi + bias_hi;
    AFTER8(row * p.channels + c, lo, hi);
    store8_y(row * p.channels + c, lo, hi);
  }
}

void normalize1(uint c, uint begin, uint end) {
  float mean = load_mean(c), bias = load_bias(c);
  float scale = load_weight(c) * inverse_deviation(load_var(c));
  if (p.has_rest != 0) bias -= load_mean(p.channels + c) * scale;
  for (uint row = begin; row < end; ++row) {
    uint i = row * p.channels + c;
    store_y(i, AFTER(i, (load_x(i) - mean) * scale + bias));
  }
}

void main() {
  uint rows = p.n / p.channels, columns = (p.channels + 7) / 8;
  uint begin = thread_id() / columns * BATCH_NORM_ROWS, c = thread_id() % columns * 8;
  if (begin >= rows) return;
  uint end = rows - begin < BATCH_NORM_ROWS ? rows : begin + BATCH_NORM_ROWS;
  uint offsets = 0;
  for (uint b = 0; b < p.offset.length(); ++b) offsets |= p.offset[b];
  if (whole_channels(offsets)) {
    normalize8(c, begin, end);
  } else {
    for (uint k = c; k < min(c + 8, p.channels); ++k) normalize1(k, begin, end);
  }
}
