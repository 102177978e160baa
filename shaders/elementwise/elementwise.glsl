// Functions that the rows of elementwise.def use. Modules are precise: rounding errors are computed and added again.
#include "elementwise/exact.glsl"

#undef exp
#undef log
#undef tanh
#define exp(x) exact_exp(x)
#define log(x) exact_log(x)
#define tanh(x) exact_tanh(x)
#define SHARED
#define mul_add(a, b, c) fma(a, b, c)
#define bits_of(x) floatBitsToUint(x)
#define float_of(x) uintBitsToFloat(x)
#define infinity INFINITY
#define nan NAN
float copy_sign(float x, float sign) { return uintBitsToFloat(magnitude_bits(x) | floatBitsToUint(sign) & 0x80000000u); }
#include "functions.h"

float round_even(float x) { return roundEven(x); }

float pow_grad(float x, float y) { return y == 0.0 ? 0.0 : y * pow(x, y - 1.0); }

float divide(float x, float y) { return x / y; }
int divide(int x, int y) { return y == 0 ? 0 : x / y; }  // a case that GLSL leaves undefined

// Returns the remainder of x / y truncated to a whole number, exactly, by the long division of C's fmod.
float modulo(float x, float y) {
  if (!is_finite(x) || is_nan(y) || is_zero(y)) return NAN;
  float rest = abs(x), divisor = abs(y);
  if (!is_finite(y) || rest < divisor) return x;
  int shift = int((floatBitsToUint(rest) >> 23) - (floatBitsToUint(divisor) >> 23));
  for (; shift >= 0; --shift) {
    float part = ldexp(divisor, shift);
    if (rest >= part) rest -= part;
  }
  return x < 0.0 ? -rest : rest;
}
int modulo(int x, int y) {
  if (y == 0 || y == -1) return 0;  // cases that GLSL leaves undefined
  int rest = abs(x) % abs(y);
  return x < 0 ? -rest : rest;
}
float floor_modulo(float x, float y) {
  float rest = modulo(x, y);
  return rest != 0.0 && (rest < 0.0) != (y < 0.0) ? rest + y : rest;
}
int floor_modulo(int x, int y) {
  int rest = modulo(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

// Returns log(exp(x) + exp(y)), and for two equal infinities that infinity.
float log_add_exp(float x, float y) {
  float high = max(x, y), distance = abs(x - y);
  return x == y ? (x + 0.693147182) - 1.90465430e-9 : high + log1p(exp(-distance));
}

#define SAVE_NONE 0
#define SAVE_X 1
#define SAVE_Y 2
