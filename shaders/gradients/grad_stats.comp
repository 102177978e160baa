//! buffers: g:f32:read table:i32:read partial:f32:write
//! params: GradStatsParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "common/chunks.glsl"
#include "common/flat.glsl"
#include "common/numbers.glsl"
#include "common/reduce.glsl"

// Returns the sum of squares of a thread's elements times `scale`, and the largest of their bits.
vec4 squares_of(Chunk chunk, float scale, out uint largest) {
  uint end = chunk.grad + chunk.size;
  vec4 squares = vec4(0.0);
  uvec4 bits = uvec4(0);
  for (uint i = chunk.grad + gl_LocalInvocationID.x * 8; i < end; i += gl_WorkGroupSize.x * 8) {
    if (is_whole(i, end, chunk.grad | p.offset[0])) {
      vec4 lo, hi;
      load8_g(i, lo, hi);
      bits = max(bits, max(magnitude_bits(lo), magnitude_bits(hi)));
      lo *= scale;
      hi *= scale;
      squares += lo * lo + hi * hi;
    } else {
      for (uint k = i; k < flat_end(i, end); ++k) {
        float g = load_g(k);
        bits.x = max(bits.x, magnitude_bits(g));
        g *= scale;
        squares.x += g * g;
      }
    }
  }
  largest = max(max(bits.x, bits.y), max(bits.z, bits.w));
  return squares;
}

float total(vec4 v) { return workgroup_sum((v.x + v.y) + (v.z + v.w)); }

void main() {
  uint group = group_id();
  if (group >= p.rows) return;
  Chunk chunk = load_chunk(p.first + group);
  uint largest;
  vec4 squares = squares_of(chunk, 1.0, largest);
  largest = workgroup_max(largest);
  bool finite = largest < 0x7f800000u;
  float scale = finite && largest >= SQUARES_DOWN_BITS ? SQUARES_DOWN
                : largest < SQUARES_UP_BITS            ? SQUARES_UP
                                                       : 1.0;
  if (scale != 1.0 && largest != 0) squares = squares_of(chunk, scale, largest);
  float sum = total(squares);
  if (gl_LocalInvocationID.x != 0) return;
  store_partial(chunk.number, sum);
  store_partial(p.chunks + chunk.number, finite ? 0.0 : 1.0);
  store_partial(2 * p.chunks + chunk.number, chunk.size == 0 ? 0.0 : scale);
}
