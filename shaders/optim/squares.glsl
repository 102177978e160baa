// Norms of values of any size (Blue 1978). Their squares are added up at three scales in one pass, since f32 does not
// hold those of 1e20 or 1e-25; the plain sum tells which of the scales is right.
#include "common/numbers.glsl"

struct Squares {
  vec4 plain, down, up;
};

Squares no_squares() { return Squares(vec4(0.0), vec4(0.0), vec4(0.0)); }

void add_squares(inout Squares s, vec4 x) {
  s.plain += x * x;
  vec4 y = SQUARES_DOWN * x;
  s.down += y * y;
  y = SQUARES_UP * x;
  s.up += y * y;
}

// The same for single values, with the sums in the order of Squares.
void add_squares(inout vec3 s, float x) {
  vec3 y = x * vec3(1.0, SQUARES_DOWN, SQUARES_UP);
  s += y * y;
}

vec3 joined(Squares s) {
  return vec3((s.plain.x + s.plain.y) + (s.plain.z + s.plain.w), (s.down.x + s.down.y) + (s.down.z + s.down.w),
              (s.up.x + s.up.y) + (s.up.z + s.up.w));
}

// Sums of at least 2^-80 lose nothing that counts by squares that vanish.
float norm_of(vec3 s) {
  if (!is_finite(s.x)) return sqrt(s.y) / SQUARES_DOWN;
  return s.x < 8.271806125530277e-25 ? sqrt(s.z) / SQUARES_UP : sqrt(s.x);
}

#ifdef WORKGROUP_REDUCE
// The norm of all threads' values.
float workgroup_norm(vec3 s) {
  return norm_of(vec3(workgroup_sum(s.x), workgroup_sum(s.y), workgroup_sum(s.z)));
}
#endif
