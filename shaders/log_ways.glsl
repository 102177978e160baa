// Ways through a lattice, in logarithms: the rows of two moments, in turn.
#include "numbers.glsl"

shared float ways[2][MOST_WAYS];

// A logarithm; NaN is none, and drivers' max() of it is either.
float known(float x) { return is_nan(x) ? LOG_NEVER : x; }

float log_add(float a, float b, float c) {
  const float top = max(a, max(b, c));
  return top <= LOG_NEVER ? LOG_NEVER : top + log(exp(a - top) + exp(b - top) + exp(c - top));
}
