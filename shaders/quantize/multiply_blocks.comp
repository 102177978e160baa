//! buffers: x:T:read codes:u8:read y:T:write
//! types: T = f32 f16
//! params: BlockMatrixParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#define CODES 1
#include "common/reduce.glsl"
#include "quantize/blocks.glsl"

WORKGROUP_REDUCE(workgroup_sum, vec4, sums_scratch, subgroupAdd, REDUCE_ADD)

void main() {
  uint row = group_id();
  if (row >= p.rows) return;
  prepare_blocks();
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
  // Not in a loop: drivers unroll none that contains workgroup_sum's, and sums would not be in registers.
  vec4 first = workgroup_sum(vec4(sums[0], sums[1], sums[2], sums[3])), last = vec4(0.0);
  if (p.m > 4) last = workgroup_sum(vec4(sums[4], sums[5], sums[6], sums[7]));
  if (gl_LocalInvocationID.x > 0) return;
  [[unroll]] for (uint r = 0; r < BLOCK_ROWS; ++r) {
    if (r < p.m) store_y(r * p.rows + row, r < 4 ? first[r % 4] : last[r % 4]);
  }
}
