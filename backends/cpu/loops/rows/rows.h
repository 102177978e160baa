// Exponentials of rows, below their largest value.
#pragma once

#include "../vectors.h"

namespace rw::cpu::REWIND_LEVEL {

// Elements [at, at + cols): the largest, NaN passed over.
inline float top_of(const Operand& x, int64_t at, int64_t cols) {
  float top = -infinity;
  blocks_of(cols, [&](int64_t first, int64_t n) {
    Block values;
    const float most = largest(read(x, at + first, n, values.at), n);
    top = most > top ? most : top;
  });
  return top;
}

inline void exponentials(const float* x, int64_t count, float top, float* to) {
  REWIND_VECTORIZE
  for (int64_t i = 0; i < count; ++i) to[i] = exp_below(x[i] - top);
}

// The logarithm of the sum of exp(x); NaN where one is NaN or infinity, or all are -infinity.
inline double log_sum_exp(const Operand& x, int64_t at, int64_t cols) {
  const float top = top_of(x, at, cols);
  double total = 0;
  blocks_of(cols, [&](int64_t first, int64_t n) {
    Block values, powers;
    exponentials(read(x, at + first, n, values.at), n, top, powers.at);
    total += sum(powers.at, n);
  });
  return double{top} + __builtin_log(total);
}

}  // namespace rw::cpu::REWIND_LEVEL
