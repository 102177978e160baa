//! buffers: x:T:read row:i32:read_write state:f32:read
//! types: T = f32 f16
//! params: ValueRangeParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "common/flat.glsl"
#include "common/numbers.glsl"
#include "common/reduce.glsl"
#include "common/strided.glsl"
layout(constant_id = 0) const uint FLAT = 0;  //! 0 1

vec4 counts = vec4(0.0);  // NaNs, infinities, normal and denormal values: whole numbers below 2^24
uint zeros = 0, largest = 0, least = 0, least_normal;

void count(float x) {
  uint bits = magnitude_bits(x);
  if (bits > INFINITY_BITS) {
    counts.x += 1.0;
  } else if (bits == INFINITY_BITS) {
    counts.y += 1.0;
  } else if (bits == 0) {
    ++zeros;
  } else {
    if (bits >= least_normal) counts.z += 1.0;
    else counts.w += 1.0;
    largest = max(largest, bits);
    least = max(least, INFINITY_BITS - bits);
  }
}

void count(vec4 x) {
  count(x.x);
  count(x.y);
  count(x.z);
  count(x.w);
}

float strided(uint i) {
  uint x = 0;
  for (uint d = p.rank, rest = i; d-- > 0;) x += next_coordinate(rest, d) * p.stride[d];
  return load_x(x);
}

void add(uint word, float count) {
  if (count > 0.0) atomicAdd(row_uint[p.offset[1] + word], uint(count));
}

void main() {
  uint begin = group_id() * p.chunk;
  if (begin >= p.n) return;
  uint end = min(p.n, begin + p.chunk);
  least_normal = floatBitsToUint(p.least_normal * (p.scaled == 1 ? load_state(STATE_SCALE) : 1.0));
  for (uint i = begin + gl_LocalInvocationID.x * 8; i < end; i += gl_WorkGroupSize.x * 8) {
    if (FLAT == 1 && is_whole(i, end, p.offset[0])) {
      vec4 lo, hi;
      load8_x(i, lo, hi);
      count(lo);
      count(hi);
    } else {
      [[unroll]] for (uint k = 0; k < 8; ++k) {
        if (i + k < end) count(FLAT == 1 ? load_x(i + k) : strided(i + k));
      }
    }
  }
  float nans = workgroup_sum(counts.x), infinities = workgroup_sum(counts.y);
  float normals = workgroup_sum(counts.z), denormals = workgroup_sum(counts.w);
  float none = workgroup_sum(float(zeros));
  uint top = workgroup_max(largest), bottom = workgroup_max(least);
  if (gl_LocalInvocationID.x != 0) return;
  add(RANGE_NANS, nans);
  add(RANGE_INFINITIES, infinities);
  add(RANGE_NORMALS, normals);
  add(RANGE_DENORMALS, denormals);
  add(RANGE_ZEROS, none);
  atomicMax(row_uint[p.offset[1] + RANGE_LARGEST], top);
  atomicMax(row_uint[p.offset[1] + RANGE_LEAST], bottom);
}
