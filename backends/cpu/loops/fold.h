// Folds of many f32 values, in an order that only sizes decide: in vectors, then among lanes.
#pragma once

#include "functions.h"

namespace rw::cpu::REWIND_LEVEL {

// The operations of folds: sum, largest, least, product. A NaN wins.
struct Sum {
  static constexpr float nothing = 0.0f;
  static Vec of(Vec a, Vec b) { return a + b; }
  static float of(float a, float b) { return a + b; }
};
struct Product {
  static constexpr float nothing = 1.0f;
  static Vec of(Vec a, Vec b) { return a * b; }
  static float of(float a, float b) { return a * b; }
};
struct Largest {
  static constexpr float nothing = -infinity;
  static Vec of(Vec a, Vec b) { return ((b > a) | (b != b)) ? b : a; }
  static float of(float a, float b) { return b > a || b != b ? b : a; }
};
struct Least {
  static constexpr float nothing = infinity;
  static Vec of(Vec a, Vec b) { return ((b < a) | (b != b)) ? b : a; }
  static float of(float a, float b) { return b < a || b != b ? b : a; }
};

// Returns the first `count` lanes from x, with the identity in the others.
template <class F>
inline Vec load_first(const float* x, int64_t count) {
  float padded[lanes];
  for (int64_t i = 0; i < lanes; ++i) padded[i] = F::nothing;
  for (int64_t i = 0; i < count; ++i) padded[i] = x[i];
  return load(padded);
}

// Folds f(x[i]) over all i that are congruent to a lane, for each lane; f(identity) is the
// identity.
template <class F, class Map>
inline Vec fold(const float* x, int64_t count, const Map& f) {
  Vec a = all(F::nothing), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = F::of(a, f(load(x + i)));
    b = F::of(b, f(load(x + i + lanes)));
    c = F::of(c, f(load(x + i + 2 * lanes)));
    d = F::of(d, f(load(x + i + 3 * lanes)));
  }
  for (; i + lanes <= count; i += lanes) a = F::of(a, f(load(x + i)));
  if (i < count) b = F::of(b, f(load_first<F>(x + i, count - i)));
  return F::of(F::of(a, b), F::of(c, d));
}
template <class F>
inline Vec fold(const float* x, int64_t count) {
  return fold<F>(x, count, [](Vec v) { return v; });
}
inline Vec fold_squares(const float* x, int64_t count, float scale = 1) {
  return fold<Sum>(x, count, [=](Vec v) { return (v * scale) * (v * scale); });
}

// Joins neighbouring lanes of a, then of b, by pairs.
template <class F>
inline Vec join_pairs(Vec a, Vec b) {
#if defined(__AVX512F__)
  return F::of(
      __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
      __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31));
#elif defined(__AVX__)
  return F::of(__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14),
               __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15));
#else
  return F::of(__builtin_shufflevector(a, b, 0, 2, 4, 6),
               __builtin_shufflevector(a, b, 1, 3, 5, 7));
#endif
}

// Sets lane i to the fold of all lanes of v[i]; v is overwritten.
template <class F>
inline Vec fold_lanes(Vec (&v)[lanes]) {
#pragma GCC unroll 4
  for (int64_t left = lanes / 2; left > 0; left /= 2)
#pragma GCC unroll 8
    for (int64_t i = 0; i < left; ++i) v[i] = join_pairs<F>(v[2 * i], v[2 * i + 1]);
  return v[0];
}

// Folds all lanes of v.
template <class F>
inline float fold_lanes(Vec v) {
#pragma GCC unroll 4
  for (int64_t left = lanes; left > 1; left /= 2) v = join_pairs<F>(v, v);
  return v[0];
}

// Folds x[0 .. count), for example to its sum.
template <class F>
inline float folded(const float* x, int64_t count) {
  return fold_lanes<F>(fold<F>(x, count));
}

// The bits of the largest magnitude. They are in the order of the values, with what is not finite
// above all others.
inline uint32_t largest_bits(const float* x, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = bits_of(x[i]) & 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  return most;
}

}  // namespace rw::cpu::REWIND_LEVEL
