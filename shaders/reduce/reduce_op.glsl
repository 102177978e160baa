// The ways in which `reduce_columns` and `reduce_rows` join values of type T.
#include "common/numbers.glsl"
layout(constant_id = 0) const uint OP = 0;  //! 0 1 2 3
#define SUM 0
#define MAX 1
#define MIN 2
#define PROD 3

T_value identity() {
#if T_FLOAT
  return OP == SUM ? 0.0 : OP == MAX ? -INFINITY : OP == MIN ? INFINITY : 1.0;
#else
  return OP == SUM ? 0 : OP == MAX ? 0x80000000 : OP == MIN ? 0x7fffffff : 1;
#endif
}

// Maps values to numbers in the same order, and back. Extremes are found among these: max() may take denormals for
// zeros, and the gradient of an extreme looks for the element that equals it.
#if T_FLOAT
uint ordered(float x) {
  uint bits = floatBitsToUint(x);
  return is_negative(x) ? ~bits : bits | 0x80000000u;
}
float unordered(uint bits) { return uintBitsToFloat((bits & 0x80000000u) == 0 ? ~bits : bits & 0x7fffffffu); }
bool stays(float x, float y) { return is_nan(x) || (!is_nan(y) && (OP == MAX) == (ordered(x) > ordered(y))); }
#else
uint ordered(int x) { return uint(x) ^ 0x80000000u; }
int unordered(uint bits) { return int(bits ^ 0x80000000u); }
bool stays(int x, int y) { return (OP == MAX) == (x > y); }
#endif

T_value join(T_value x, T_value y) {
  switch (OP) {
    case SUM: return x + y;
    case PROD: return x * y;
    default: return stays(x, y) ? x : y;
  }
}

T_vec4 join(T_vec4 x, T_vec4 y) {
  return T_vec4(join(x.x, y.x), join(x.y, y.y), join(x.z, y.z), join(x.w, y.w));
}

#if T_FLOAT
// A scale of 1 leaves denormals as they are.
float scaled(float x) { return p.scale == 1.0 ? x : x * p.scale; }
vec4 scaled(vec4 x) { return p.scale == 1.0 ? x : x * p.scale; }
#else
int scaled(int x) { return x; }
ivec4 scaled(ivec4 x) { return x; }
#endif
