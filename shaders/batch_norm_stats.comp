//! buffers: x:T:read partial:f32:write
//! types: T = f32 f16
//! params: BatchNormStatsParams
//! local: 8,8
//! grid: 3d

// Welford's update, row by row: no cancellation however large the mean is.
void stats8(uint c, uint begin, uint end, uint at) {
  vec4 mean_lo = vec4(0.0), mean_hi = mean_lo, squares_lo = mean_lo, squares_hi = mean_lo;
  float count = 0.0;
  for (uint row = begin; row < end; ++row) {
    vec4 lo, hi;
    load8_x(row * p.channels + c, lo, hi);
    count += 1.0;
    vec4 delta_lo = lo - mean_lo, delta_hi = hi - mean_hi;
    mean_lo += delta_lo * (1.0 / count);
    mean_hi += delta_hi * (1.0 / count);
    squares_lo += delta_lo * (lo - mean_lo);
    squares_hi += delta_hi * (hi - mean_hi);
  }
  store8_partial(at, mean_lo, mean_hi);
  store8_partial(at + p.channels, squares_lo, squares_hi);
}

void stats1(uint c, uint begin, uint end, uint at) {
  float mean = 0.0, squares = 0.0, count = 0.0;
  for (uint row = begin; row < end; ++row) {
    float x = load_x(row * p.channels + c);
    count += 1.0;
    float delta = x - mean;
    mean += delta * (1.0 / count);
    squares += delta * (x - mean);
  }
  store_partial(at, mean);
  store_partial(at + p.channels, squares);
}

void main() {
  uint c = gl_GlobalInvocationID.x * 8, chunk = gl_GlobalInvocationID.y;
  uint begin = chunk * p.chunk_rows, end = min(begin + p.chunk_rows, p.rows);
  if (c >= p.channels || begin >= p.rows) return;
  uint at = chunk * 2 * p.channels + c;
  if ((p.channels | p.offset[0] | p.offset[1]) % 8 == 0) {
    stats8(c, begin, end, at);
  } else {
    for (uint k = 0; k < min(8, p.channels - c); ++k) stats1(c + k, begin, end, at + k);
  }
}
