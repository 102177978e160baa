// Logarithms of ways through a lattice, side by side.
#pragma once

#include "../vectors.h"

namespace rw::cpu::REWIND_LEVEL {

constexpr float never = LOG_NEVER;

struct Ways {
  static constexpr int64_t margin = 2;
  alignas(64) float memory[MOST_WAYS + 2 * margin];

  Ways() {
    for (float& way : memory) way = never;
  }
  // Ways are numbered from -2 to MOST_WAYS + 1.
  float* at() { return memory + margin; }
  const float* at() const { return memory + margin; }
};

inline float log_add(float a, float b, float c) {
  const float ab = a > b ? a : b, top = ab > c ? ab : c;
  const float sum = top + log(exp(a - top) + exp(b - top) + exp(c - top));
  return top <= never ? never : sum;
}
inline float at_least_never(float x) {
  return x > never ? x : never;
}
// Replaces NaN, which is no logarithm.
inline float known(float x) {
  return x != x ? never : x;
}
inline float loss_of(double total) {
  return total <= double{never} / 2 ? infinity : static_cast<float>(-total);
}
inline bool is_finite(float x) {
  return x - x == 0.0f;
}

}  // namespace rw::cpu::REWIND_LEVEL
