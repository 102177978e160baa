// How `reduce` and `reduce_rows` join values of type T.
#include "numbers.glsl"
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

T_value join(T_value x, T_value y) {
  switch (OP) {
    case SUM: return x + y;
    case MAX: return nan_max(x, y);
    case MIN: return nan_min(x, y);
    default: return x * y;
  }
}

T_vec4 join(T_vec4 x, T_vec4 y) {
  return T_vec4(join(x.x, y.x), join(x.y, y.y), join(x.z, y.z), join(x.w, y.w));
}

#if T_FLOAT
float scaled(float x) { return x * p.scale; }
vec4 scaled(vec4 x) { return x * p.scale; }
#else
int scaled(int x) { return x; }
ivec4 scaled(ivec4 x) { return x; }
#endif
