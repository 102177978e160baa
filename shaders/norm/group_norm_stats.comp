//! buffers: x:T:read moments:f32:write
//! types: T = f32 f16
//! params: GroupNormParams
//! local: 64
#include "norm/group_norm.glsl"

// Joins each channel k with channel k + STEP, both of equally many elements (Chan et al. 1979).
#define JOIN(STEP)                                                      \
  if (p.merged > (STEP)) {                                              \
    [[unroll]] for (uint k = 0; k < 8; k += 2 * (STEP)) {               \
      float delta = mean[k + (STEP)] - mean[k];                         \
      mean[k] += 0.5 * delta;                                           \
      squares[k] += squares[k + (STEP)] + 0.5 * count * delta * delta;  \
    }                                                                   \
    count *= 2.0;                                                       \
  }

void write_blocks(Place at, float count, float mean[8], float squares[8]) {
  JOIN(1)
  JOIN(2)
  JOIN(4)
  uint across = p.width / p.merged, blocks = (p.rows + p.chunk_rows - 1) / p.chunk_rows * across;
  [[unroll]] for (uint k = 0; k < 8; ++k) {
    uint c = at.c + k;
    if (k % p.merged == 0 && c < p.channels) {
      uint group = at.sample_index * (p.channels / p.width) + c / p.width;
      uint block = group * blocks + at.part * across + c % p.width / p.merged;
      store_moments(3 * block, count);
      store_moments(3 * block + 1, mean[k]);
      store_moments(3 * block + 2, squares[k]);
    }
  }
}

// Welford's update, row by row, which has no cancellation however large the mean is.
void main() {
  Place at = place(p.chunk_rows);
  if (at.sample_index >= p.samples) return;
  vec4 mean_lo = vec4(0.0), mean_hi = mean_lo, squares_lo = mean_lo, squares_hi = mean_lo;
  vec4 first_lo, first_hi;
  load_firsts(at, first_lo, first_hi);
  float count = 0.0;
  for (uint row = at.begin; row < at.end; ++row) {
    vec4 lo, hi;
    LOAD_CHANNELS(load8_x, load_x, row * p.channels + at.c, at.c, lo, hi)
    lo = (lo - first_lo) * NORM_SCALE;
    hi = (hi - first_hi) * NORM_SCALE;
    count += 1.0;
    vec4 delta_lo = lo - mean_lo, delta_hi = hi - mean_hi;
    mean_lo += delta_lo * (1.0 / count);
    mean_hi += delta_hi * (1.0 / count);
    squares_lo += delta_lo * (lo - mean_lo);
    squares_hi += delta_hi * (hi - mean_hi);
  }
  float mean[8], squares[8];
  [[unroll]] for (uint k = 0; k < 4; ++k) {
    mean[k] = mean_lo[k];
    mean[k + 4] = mean_hi[k];
    squares[k] = squares_lo[k];
    squares[k + 4] = squares_hi[k];
  }
  write_blocks(at, count, mean, squares);
}
