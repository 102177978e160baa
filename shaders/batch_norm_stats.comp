//! buffers: x:T:read partial:f32:write
//! types: T = f32 f16
//! params: BatchNormStatsParams
//! local: 8,8
//! grid: 3d
//! texels: yes
#include "some.glsl"

layout(constant_id = 0) const uint WHOLE = 0;  //! 0 1

#define ROWS_AHEAD 4  // that are loaded at once

// Welford's update, row by row: no cancellation however large the mean is.
void stats(uint c, uint begin, uint end, uint at) {
  vec4 mean_lo = vec4(0.0), mean_hi = mean_lo, squares_lo = mean_lo, squares_hi = mean_lo;
  float count = 0.0;
  for (uint first = begin; first < end; first += ROWS_AHEAD) {
    vec4 lo[ROWS_AHEAD], hi[ROWS_AHEAD];
    [[unroll]] for (uint r = 0; r < ROWS_AHEAD; ++r) {
      uint at = min(first + r, end - 1) * p.channels + c;
      if (WHOLE == 1) {
        load8_x(at, lo[r], hi[r]);
      } else {
        LOAD_SOME(load_x, at, p.channels - c, lo[r], hi[r])
      }
    }
    [[unroll]] for (uint r = 0; r < ROWS_AHEAD; ++r) {
      if (first + r < end) {
        count += 1.0;
        vec4 delta_lo = lo[r] - mean_lo, delta_hi = hi[r] - mean_hi;
        mean_lo += delta_lo * (1.0 / count);
        mean_hi += delta_hi * (1.0 / count);
        squares_lo += delta_lo * (lo[r] - mean_lo);
        squares_hi += delta_hi * (hi[r] - mean_hi);
      }
    }
  }
  STORE_SOME(store_partial, at, p.channels - c, mean_lo, mean_hi)
  STORE_SOME(store_partial, at + p.channels, p.channels - c, squares_lo, squares_hi)
}

void main() {
  uint c = gl_GlobalInvocationID.x * 8, chunk = gl_GlobalInvocationID.y;
  uint begin = chunk * p.chunk_rows, end = min(begin + p.chunk_rows, p.rows);
  if (c >= p.channels || begin >= p.rows) return;
  uint at = chunk * 2 * p.channels + c;
  stats(c, begin, end, at);
}
