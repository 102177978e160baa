//! buffers: y:T:write
//! types: T = f32 f16
//! params: RandomParams
//! local: 64
#include "common/flat.glsl"
#include "random/random_words.glsl"
#include "common/trig.glsl"
layout(constant_id = 0) const uint NORMAL = 0;  //! 0 1

// Box-Muller: each pair of uniforms gives two values. 1 - u is never 0.
vec4 normal_from(vec4 u) {
  vec2 radius = sqrt(-2.0 * log(1.0 - u.xz));
  vec2 angle = 6.28318531 * u.yw;
  return vec4(radius.x * cos(angle.x), radius.x * sin(angle.x),  //
              radius.y * cos(angle.y), radius.y * sin(angle.y));
}

// Returns elements i to i + 3.
vec4 values(uint i) {
  vec4 u = uniform_from(random_words(i / 4));
  return NORMAL == 1 ? p.a + p.b * normal_from(u) : p.a + (p.b - p.a) * u;
}

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n) return;
  if (is_whole(i, p.n, p.offset[0])) {
    store8_y(i, values(i), values(i + 4));
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) store_y(k, values(k)[k % 4]);
  }
}
