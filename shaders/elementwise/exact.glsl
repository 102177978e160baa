// tanh, log, pow, max and min as in C and PyTorch for every float. GLSL's own leave the results for NaN, 0, negative
// and infinite numbers undefined, and tanh's for large ones. Also sin and cos.
#include "common/numbers.glsl"
#include "common/trig.glsl"

// tanh is 1 in f32 from 9.01 on; (exp(x) - exp(-x)) / (exp(x) + exp(-x)), as drivers may compute it, is NaN from 89 on.
float real_tanh(float x) { return is_nan(x) ? x : tanh(clamp(x, -10.0, 10.0)); }
vec4 real_tanh(vec4 x) { return mix(tanh(clamp(x, vec4(-10.0), vec4(10.0))), x, is_nan(x)); }

float real_log(float x) {
  const uint bits = magnitude_bits(x);
  if (bits == 0) return -INFINITY;
  if (is_nan(x) || is_negative(x)) return NAN;
  if (is_zero(x)) return log(float(bits)) - 103.278929903;  // a denormal is so many times 2^-149
  return is_finite(x) ? log(x) : x;
}

float real_pow(float x, float y) {
  if (is_zero(y) || x == 1.0) return 1.0;
  if (is_nan(x) || is_nan(y)) return NAN;
  const float base = abs(x);
  const bool grows = y > 0.0, whole = floor(y) == y, odd = whole && floor(y * 0.5) * 2.0 != y;
  float r = pow(base, y);
  if (!is_finite(y)) r = base == 1.0 ? 1.0 : (base > 1.0) == grows ? INFINITY : 0.0;
  if (is_zero(x)) r = grows ? 0.0 : INFINITY;
  if (!is_finite(x)) r = grows ? INFINITY : 0.0;
  if (!is_negative(x)) return r;
  if (!whole && is_finite(x) && !is_zero(x)) return NAN;
  return odd ? -r : r;
}
// Computes powers by squaring; a negative power of anything but 1 and -1 is 0.
int real_pow(int x, int y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? 1 - 2 * (y & 1) : 0;
  int r = 1;
  for (; y > 0; y >>= 1) {
    if ((y & 1) != 0) r *= x;
    x *= x;
  }
  return r;
}

#define tanh(x) real_tanh(x)
#define log(x) real_log(x)
#define pow(x, y) real_pow(x, y)
#define max(x, y) nan_max(x, y)
#define min(x, y) nan_min(x, y)
