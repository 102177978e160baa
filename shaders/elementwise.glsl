// Functions that the rows of elementwise.def use.
#include "numbers.glsl"
#include "trig.glsl"

// Rational approximation x P(x^2) / Q(x^2), fitted to a relative error of 2e-8; 1 beyond 3.9.
float erf(float x) {
  x = clamp(x, -3.9, 3.9);
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

// GLSL's pow is undefined for a negative base and for 0 to the 0.
float real_pow(float x, float y) {
  if (y == 0.0) return 1.0;
  float r = pow(abs(x), y);
  if (x >= 0.0) return r;
  if (floor(y) != y) return NAN;
  return floor(y * 0.5) * 2.0 != y ? -r : r;
}

#define pow(x, y) real_pow(x, y)
#define max(x, y) nan_max(x, y)
#define min(x, y) nan_min(x, y)

#define SAVE_NONE 0
#define SAVE_X 1
#define SAVE_Y 2
