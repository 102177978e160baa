//! buffers: x:T:read mean:f32:read var:f32:read weight:f32:read bias:f32:read y:T:write
//! types: T = f32 f16
//! params: BatchNormParams
//! local: 64
//! texels: yes
#include "batch_norm.glsl"

void normalize8(uint c, uint begin, uint end) {
  vec4 mean_lo, mean_hi, scale_lo, scale_hi, bias_lo, bias_hi, weight_lo, weight_hi;
  load8_mean(c, mean_lo, mean_hi);
  load8_var(c, scale_lo, scale_hi);
  load8_weight(c, weight_lo, weight_hi);
  load8_bias(c, bias_lo, bias_hi);
  scale_lo = weight_lo * inverse_deviation(scale_lo);
  scale_hi = weight_hi * inverse_deviation(scale_hi);
  for (uint row = begin; row < end; ++row) {
    vec4 lo, hi;
    load8_x(row * p.channels + c, lo, hi);
    lo = (lo - mean_lo) * scale_lo + bias_lo;
    hi = (hi - mean_hi) * scale_hi + bias_hi;
    store8_y(row * p.channels + c, lo, hi);
  }
}

void normalize1(uint c, uint begin, uint end) {
  float mean = load_mean(c), bias = load_bias(c);
  float scale = load_weight(c) * inverse_deviation(load_var(c));
  for (uint row = begin; row < end; ++row) {
    uint i = row * p.channels + c;
    store_y(i, (load_x(i) - mean) * scale + bias);
  }
}

void main() {
  uint rows = p.n / p.channels, columns = (p.channels + 7) / 8;
  uint begin = thread_id() / columns * BATCH_NORM_ROWS, c = thread_id() % columns * 8;
  uint end = min(begin + BATCH_NORM_ROWS, rows);
  if (begin >= rows) return;
  uint offsets = p.offset[0] | p.offset[1] | p.offset[2] | p.offset[3] | p.offset[4] | p.offset[5];
  if (whole_channels(offsets)) {
    normalize8(c, begin, end);
  } else {
    for (uint k = c; k < min(c + 8, p.channels); ++k) normalize1(k, begin, end);
  }
}
