// Ways through a lattice, in logarithms, with the rows of two moments, in turn.
#include "common/numbers.glsl"

shared float ways[2][MOST_WAYS];

// Replaces NaN, which is no logarithm, and which drivers' max() treats in different ways.
float known(float x) { return is_nan(x) ? LOG_NEVER : x; }

// Returns an offset that keeps the logarithms of ways near 0 if the highest is `highest`; it is whole, so that sums of
// it are exact. The second function subtracts it from a way.
float whole_offset(float highest) { return highest > LOG_NEVER / 2 ? floor(highest) : 0.0; }
float less(float way, float offset) { return way > LOG_NEVER / 2 ? way - offset : way; }

// Returns the logarithm of 1 to 3, by the series of 2 atanh((x - 1) / (x + 1)): drivers' log() may be wrong by 1e-6,
// which adds up frame by frame.
float log_of_few(float x) {
  const bool upper = x > 1.5;
  const float half_x = upper ? 0.5 * x : x, z = (half_x - 1.0) / (half_x + 1.0), q = z * z;
  const float series = 2.0 * z * (1.0 + q * (0.33333333 + q * (0.2 + q * (0.14285714 + q * 0.11111111))));
  return upper ? series + 0.69314718 : series;
}

float log_add(float a, float b, float c) {
  const float top = max(a, max(b, c));
  return top <= LOG_NEVER ? LOG_NEVER : top + log_of_few(exp(a - top) + exp(b - top) + exp(c - top));
}
