// What the kernels of the CTC loss share: a sample's states.
#include "numbers.glsl"

#define CLASS 0
#define NEXT 1
#define FLAGS 2
#define COUNTS 3
uint state_at(uint sample_number, uint row, uint s) {
  return (sample_number * 4 + row) * p.width + s;
}

float log_add(float a, float b, float c) {
  const float top = max(a, max(b, c));
  return top <= CTC_NEVER ? CTC_NEVER : top + log(exp(a - top) + exp(b - top) + exp(c - top));
}
