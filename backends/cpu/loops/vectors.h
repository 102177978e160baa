// Arithmetic on whole registers, and sums whose order depends only on the count.
#pragma once

#include "functions.h"

namespace rw::cpu::REWIND_LEVEL {

// Computes a * b + c, rounded once if the level has such an instruction.
inline Vec mul_add(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_FEATURE_FMA)
  Vec y;
  for (int64_t i = 0; i < lanes; ++i) y[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return y;
#else
  return a * b + c;
#endif
}

inline Vec max(Vec a, Vec b) {
  return a > b ? a : b;
}

// Folds all lanes by f(x, y), halves first.
template <class F>
inline float across(Vec x, const F& f) {
  alignas(64) float at[lanes];
  __builtin_memcpy(at, &x, sizeof at);
#pragma GCC unroll 4
  for (int64_t half = lanes / 2; half > 0; half /= 2)
#pragma GCC unroll 16
    for (int64_t i = 0; i < half; ++i) at[i] = f(at[i], at[i + half]);
  return at[0];
}
// The sum of all lanes, in the order of across(), in registers.
template <class V>
inline float sum_of_lanes(V x) {
  constexpr int count = sizeof(V) / sizeof(float);
  if constexpr (count == 16) {
    return sum_of_lanes(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                        __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
  } else if constexpr (count == 8) {
    return sum_of_lanes(__builtin_shufflevector(x, x, 0, 1, 2, 3) +
                        __builtin_shufflevector(x, x, 4, 5, 6, 7));
  } else {
    static_assert(count == 4);
    const V pairs = x + __builtin_shufflevector(x, x, 2, 3, 2, 3);
    return pairs[0] + pairs[1];
  }
}

// Returns the sum of f(x[i]), or of f(x[i], y[i]); f takes registers and floats.
template <class F, class... X>
inline float sum(int64_t count, const F& f, const X*... x) {
  Vec sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes)
#pragma GCC unroll 4
    for (int64_t k = 0; k < 4; ++k) sums[k] += f(load(x + i + k * lanes)...);
  for (; i + lanes <= count; i += lanes) sums[0] += f(load(x + i)...);
  float all = sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < count; ++i) all += f(x[i]...);
  return all;
}
inline float sum(const float* x, int64_t count) {
  return sum(
      count, [](auto v) { return v; }, x);
}

// Returns the largest of x, skipping NaN.
inline float largest(const float* x, int64_t count) {
  Vec tops[4] = {all(-infinity), all(-infinity), all(-infinity), all(-infinity)};
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes)
#pragma GCC unroll 4
    for (int64_t k = 0; k < 4; ++k) tops[k] = max(load(x + i + k * lanes), tops[k]);
  for (; i + lanes <= count; i += lanes) tops[0] = max(load(x + i), tops[0]);
  float top = across(max(max(tops[0], tops[1]), max(tops[2], tops[3])),
                     [](float a, float b) { return a > b ? a : b; });
  for (; i < count; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

// Rows of f32, the first at `at`.
struct Rows {
  const float* at;
  int64_t step;
  float operator()(int64_t row, int64_t c) const { return at[row * step + c]; }
};

// Calls body(at, count) for the blocks of a row.
template <class Body>
inline void blocks_of(int64_t cols, const Body& body) {
  for (int64_t at = 0; at < cols; at += block) body(at, least(block, cols - at));
}

// One row of a matrix as f32, by blocks. It keeps the last block that was read, so that a row of
// one block is converted once.
class Row {
 public:
  Row(const Operand& x, int64_t row, int64_t cols) : x_(x.from(row * cols)) {}

  const float* read(int64_t at, int64_t count) {
    if (x_.dtype == DType::f32) return x_.as<float>(at);
    if (at != kept_) REWIND_LEVEL::read(x_, at, count, block_.at);
    kept_ = at;
    return block_.at;
  }

 private:
  Operand x_;
  int64_t kept_ = -1;
  Block block_;
};

}  // namespace rw::cpu::REWIND_LEVEL
