// Exponentials of rows, relative to their largest value.
#pragma once

#include "../vectors.h"

namespace rw::cpu::REWIND_LEVEL {

// Returns the largest element, skipping NaN.
inline float top_of(Row& x, int64_t cols) {
  float top = -infinity;
  blocks_of(cols, [&](int64_t first, int64_t n) {
    const float most = largest(x.read(first, n), n);
    top = most > top ? most : top;
  });
  return top;
}

inline void exponentials(const float* x, int64_t count, float top, float* to) {
  REWIND_VECTORIZE
  for (int64_t i = 0; i < count; ++i) to[i] = exp_below(x[i] - top);
}

// Returns the logarithm of the sum of exp(x), and NaN if an element is NaN or infinity, or all are
// -infinity.
inline double log_sum_exp(Row& x, int64_t cols) {
  const float top = top_of(x, cols);
  double total = 0;
  blocks_of(cols, [&](int64_t first, int64_t n) {
    Block powers;
    exponentials(x.read(first, n), n, top, powers.at);
    total += sum(powers.at, n);
  });
  return double{top} + __builtin_log(total);
}

}  // namespace rw::cpu::REWIND_LEVEL
