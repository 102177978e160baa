//! buffers: x:T:read codes:u8:read y:T:write
//! types: T = f32 f16
//! params: BlockMatrixParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#define CODES 1
#include "common/reduce.glsl"
#include "quantize/blocks.glsl"

void main() {
  uint row = group_id();
  if (row >= p.rows) return;
  float sums[BLOCK_ROWS];
  [[unroll]] for (uint r = 0; r < BLOCK_ROWS; ++r) sums[r] = 0.0;
  for (uint column = gl_LocalInvocationID.x * 8; column < p.cols; column += gl_WorkGroupSize.x * 8) {
    vec4 lo, hi, x_lo, x_hi;
    decode8(row, column, lo, hi);
    [[unroll]] for (uint r = 0; r < BLOCK_ROWS; ++r) {
      if (r < p.m) {
        load8_x(r * p.cols + column, x_lo, x_hi);
        sums[r] += dot(lo, x_lo) + dot(hi, x_hi);
      }
    }
  }
  [[unroll]] for (uint r = 0; r < BLOCK_ROWS; ++r) {
    if (r < p.m) {
      float sum = workgroup_sum(sums[r]);
      if (gl_LocalInvocationID.x == 0) store_y(r * p.rows + row, sum);
    }
  }
}
