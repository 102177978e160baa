//! buffers: g:f32:read table:i32:read partial:f32:write
//! params: GradStatsParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "chunks.glsl"
#include "flat.glsl"
#include "numbers.glsl"
#include "reduce.glsl"

void main() {
  uint group = group_id();
  if (group >= p.rows) return;
  Chunk chunk = load_chunk(p.first + group);
  uint end = chunk.grad + chunk.size;
  vec4 squares = vec4(0.0);
  uvec4 bits = uvec4(0);
  for (uint i = chunk.grad + gl_LocalInvocationID.x * 8; i < end; i += gl_WorkGroupSize.x * 8) {
    if (is_whole(i, end, chunk.grad | p.offset[0])) {
      vec4 lo, hi;
      load8_g(i, lo, hi);
      squares += lo * lo + hi * hi;
      bits = max(bits, max(magnitude_bits(lo), magnitude_bits(hi)));
    } else {
      for (uint k = i; k < flat_end(i, end); ++k) {
        float g = load_g(k);
        squares.x += g * g;
        bits.x = max(bits.x, magnitude_bits(g));
      }
    }
  }
  float total = workgroup_sum((squares.x + squares.y) + (squares.z + squares.w));
  uint largest = workgroup_max(max(max(bits.x, bits.y), max(bits.z, bits.w)));
  if (gl_LocalInvocationID.x != 0) return;
  store_partial(chunk.number, total);
  store_partial(p.chunks + chunk.number, largest < 0x7f800000u ? 0.0 : 1.0);
}
