// Functions that the rows of elementwise.def use.
#include "exact.glsl"

// The rational approximation x P(x^2) / Q(x^2), fitted to a relative error of 2e-8; 1 beyond 3.9.
float erf(float x) {
  if (abs(x) >= 3.9) return x < 0.0 ? -1.0 : 1.0;  // false for NaN
  float t = x * x;
  float numerator = 2.06675423e-6;
  numerator = numerator * t + 2.84995911e-4;
  numerator = numerator * t + 3.7359107e-3;
  numerator = numerator * t + 5.26605844e-2;
  numerator = numerator * t + 0.189611689;
  numerator = numerator * t + 1.12837915;
  float denominator = 3.82694481e-5;
  denominator = denominator * t + 1.15676301e-3;
  denominator = denominator * t + 1.49094293e-2;
  denominator = denominator * t + 0.113795975;
  denominator = denominator * t + 0.501371779;
  denominator = denominator * t + 1.0;
  return x * numerator / denominator;
}

float silu_grad(float x) {
  float sigmoid = 1.0 / (1.0 + exp(-x));
  return sigmoid * (1.0 + x * (1.0 - sigmoid));
}

float gelu_grad(float x) {
  return 0.5 * (1.0 + erf(x * 0.70710678)) + x * 0.39894228 * exp(-0.5 * x * x);
}

float gelu_tanh_grad(float x) {
  float t = tanh(0.79788456 * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.79788456 * (1.0 + 0.134145 * x * x);
}

// Computes exp(x) - 1 without the cancellation near 0.
float expm1(float x) {
  if (abs(x) > 0.5) return exp(x) - 1.0;
  float series = 1.0 + x * 0.125;
  for (float n = 7.0; n > 1.0; --n) series = 1.0 + x / n * series;
  return x * series;
}

float round_even(float x) { return roundEven(x); }

// Uses Giles 2010, "Approximating the erfinv function", in single precision.
float erfinv(float x) {
  float w = -log((1.0 - x) * (1.0 + x));
  if (w < 5.0) {
    w -= 2.5;
    float p = 2.81022636e-08;
    p = 3.43273939e-07 + p * w;
    p = -3.5233877e-06 + p * w;
    p = -4.39150654e-06 + p * w;
    p = 0.00021858087 + p * w;
    p = -0.00125372503 + p * w;
    p = -0.00417768164 + p * w;
    p = 0.246640727 + p * w;
    return (1.50140941 + p * w) * x;
  }
  if (abs(x) == 1.0) return x * INFINITY;
  w = sqrt(w) - 3.0;
  float p = -0.000200214257;
  p = 0.000100950558 + p * w;
  p = 0.00134934322 + p * w;
  p = -0.00367342844 + p * w;
  p = 0.00573950773 + p * w;
  p = -0.0076224613 + p * w;
  p = 0.00943887047 + p * w;
  p = 1.00167406 + p * w;
  return (2.83297682 + p * w) * x;
}

// It does not use x / 3, which compilers may turn into a product, while chains must have the same bits (chain.glsl).
float hardswish_grad(float x) { return x <= -3.0 ? 0.0 : x >= 3.0 ? 1.0 : x * 0.33333334 + 0.5; }

// Uses tanh(log(1 + exp(x))) = ((1 + e)^2 - 1) / ((1 + e)^2 + 1).
float tanh_softplus(float x) {
  float e = exp(min(x, 20.0)), n = e * (e + 2.0);
  return n / (n + 2.0);
}
float mish_grad(float x) {
  float t = tanh_softplus(x);
  return t + x * (1.0 - t * t) / (1.0 + exp(-x));
}

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
  return x == y ? x + 0.69314718 : high + log(1.0 + exp(-distance));
}

#define SAVE_NONE 0
#define SAVE_X 1
#define SAVE_Y 2
