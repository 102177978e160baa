// Products of small f32 matrices that lie in the cache.
#pragma once

#include "fold.h"
#include "vectors.h"

namespace rw::cpu::REWIND_LEVEL {

// A tile of this many rows of registers fills most of the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int product_rows = 12;
#else
constexpr int product_rows = 6;
#endif

// An m x k matrix with any strides.
struct Factor {
  const float* at;
  int64_t row, col;
};

// Computes rows, and as many columns as the registers hold, of c = a b, or c += a b. The whole sum
// is added, so that it has the bits of a sum that was made separately.
template <int rows, int registers, bool adds>
inline void product_tile(int64_t k, const Factor& a, const float* b, int64_t b_row, float* c,
                         int64_t c_row) {
  Vec sums[rows][registers];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < registers; ++v) sums[r][v] = Vec{};
  const float* left = a.at;
  for (int64_t i = 0; i < k; ++i, left += a.col, b += b_row) {
    Vec right[registers];
#pragma GCC unroll 4
    for (int v = 0; v < registers; ++v) right[v] = load(b + v * lanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Vec factor = all(left[r * a.row]);
#pragma GCC unroll 4
      for (int v = 0; v < registers; ++v) sums[r][v] = mul_add(factor, right[v], sums[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < registers; ++v) {
      float* const to = c + r * c_row + v * lanes;
      store(to, adds ? load(to) + sums[r][v] : sums[r][v]);
    }
}

template <int rows, bool adds>
inline void product_rows_of(int64_t n, int64_t k, const Factor& a, const float* b, int64_t b_row,
                            float* c, int64_t c_row) {
  int64_t at = 0;
  for (; at + 2 * lanes <= n; at += 2 * lanes)
    product_tile<rows, 2, adds>(k, a, b + at, b_row, c + at, c_row);
  if (at < n) product_tile<rows, 1, adds>(k, a, b + at, b_row, c + at, c_row);
}

// Computes c [m, n] = a [m, k] b [k, n], or c += a b; n is a multiple of `lanes`.
template <bool adds>
inline void product(int64_t m, int64_t n, int64_t k, Factor a, const float* b, int64_t b_row,
                    float* c, int64_t c_row) {
  const auto rows = [&]<int count>() {
    product_rows_of<count, adds>(n, k, a, b, b_row, c, c_row);
    a.at += count * a.row;
    c += count * c_row;
    m -= count;
  };
  while (m >= product_rows) rows.template operator()<product_rows>();
  while (m >= 4) rows.template operator()<4>();
  while (m > 0) rows.template operator()<1>();
}

// Returns the products of x and a line, whose elements are converted in registers, summed by lanes.
// A line of `streams` is read once, with those behind it, so it asks for what is 8 KiB ahead.
template <bool streams, class T>
inline Vec dot(int64_t size, const float* x, const T* line) {
  constexpr int64_t step = 4 * lanes, ahead = 8192 / int64_t{sizeof(T)};
  Vec sums[4] = {};
  int64_t i = 0;
  for (; i + step <= size; i += step) {
    if (streams) fetch(line + i + ahead, step * int64_t{sizeof(T)});
#pragma GCC unroll 4
    for (int64_t k = 0; k < 4; ++k)
      sums[k] = mul_add(load(x + i + k * lanes), load(line + i + k * lanes), sums[k]);
  }
  for (; i + lanes <= size; i += lanes) sums[0] = mul_add(load(x + i), load(line + i), sums[0]);
  if (i < size) {
    float rest[lanes] = {};
    for (int64_t at = i; at < size; ++at) rest[at - i] = line[at];
    sums[1] = mul_add(load_first<Sum>(x + i, size - i), load(rest), sums[1]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Returns the dot products of x and of `count` lines, at most one for each lane.
template <bool streams, class T>
inline Vec dots(int64_t count, int64_t size, const float* x, const T* lines, int64_t step) {
  Vec each[lanes] = {};
  for (int64_t i = 0; i < count; ++i) each[i] = dot<streams>(size, x, lines + i * step);
  return fold_lanes<Sum>(each);
}

// Sets to [cols, rows] = factor * x [rows, cols], in squares of four.
inline void transpose(int64_t rows, int64_t cols, const float* x, int64_t x_row, float factor,
                      float* to, int64_t to_row) {
  typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
  const auto four = [](const float* at) { return *reinterpret_cast<const Four*>(at); };
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    int64_t c = 0;
    for (; c + 4 <= cols; c += 4) {
      const float* const from = x + r * x_row + c;
      const Four x0 = four(from) * factor, x1 = four(from + x_row) * factor,
                 x2 = four(from + 2 * x_row) * factor, x3 = four(from + 3 * x_row) * factor;
      const Four low01 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5);
      const Four low23 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5);
      const Four high01 = __builtin_shufflevector(x0, x1, 2, 6, 3, 7);
      const Four high23 = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
      float* const y = to + c * to_row + r;
      *reinterpret_cast<Four*>(y) = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
      *reinterpret_cast<Four*>(y + to_row) = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
      *reinterpret_cast<Four*>(y + 2 * to_row) =
          __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
      *reinterpret_cast<Four*>(y + 3 * to_row) =
          __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
    }
    for (; c < cols; ++c)
      for (int64_t k = r; k < r + 4; ++k) to[c * to_row + k] = factor * x[k * x_row + c];
  }
  for (const float* line = x + r * x_row; r < rows; ++r, line += x_row)
    for (int64_t c = 0; c < cols; ++c) to[c * to_row + r] = factor * line[c];
}

}  // namespace rw::cpu::REWIND_LEVEL
