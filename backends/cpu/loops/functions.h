// Functions of f32 without branches, so that loops over them become vectors. They are within 4 ulp
// of the true values, and right for NaN, infinities and denormals. The rows of
// shaders/elementwise.def use these names.
#pragma once

#include "halves.h"

namespace rw::cpu::REWIND_LEVEL {

constexpr float infinity = __builtin_inff(), nan = __builtin_nanf("");

REWIND_INLINE float abs(float x) {
  return __builtin_fabsf(x);
}
REWIND_INLINE float sqrt(float x) {
  return __builtin_sqrtf(x);
}
REWIND_INLINE float floor(float x) {
  return __builtin_floorf(x);
}
REWIND_INLINE float ceil(float x) {
  return __builtin_ceilf(x);
}
REWIND_INLINE float trunc(float x) {
  return __builtin_truncf(x);
}
REWIND_INLINE float round_even(float x) {
  return __builtin_nearbyintf(x);
}
REWIND_INLINE float copy_sign(float x, float sign) {
  return __builtin_copysignf(x, sign);
}

// A NaN wins, as in PyTorch.
REWIND_INLINE float max(float x, float y) {
  return x < y || y != y ? y : x;
}
REWIND_INLINE float min(float x, float y) {
  return y < x || y != y ? y : x;
}

#define SHARED REWIND_INLINE
#include "../../../shaders/functions.h"
#undef SHARED

// Returns exp(x) for x of at most 0, and 0 where that would be denormal.
REWIND_INLINE float exp_below(float x) {
  const float within = x < -87.0f ? -87.0f : x, n = whole_logarithms(within);
  const float rest = minus_logarithms(within, n);
  const float y = (1.0f + small_expm1(rest)) * power_of_two(static_cast<int32_t>(n));
  return x < -87.0f ? 0.0f : y;
}

// Reduces x by whole quarters of a turn and counts them. A product and a sum that are rounded once
// keep what is near a multiple as exact as f32, for |x| of at most `most_turned`.
constexpr float most_turned = 0x1p30f;
struct Quarters {
  uint32_t n;
  float rest;
};
REWIND_INLINE Quarters quarters(double x) {
  const double shift = 0x1.8p52, shifted = x * 0.63661977236758134 + shift, n = shifted - shift;
  const double rest =
      __builtin_fma(n, -6.123233995736766e-17, __builtin_fma(n, -1.5707963267948966, x));
  const bool is_inside = rest >= -1.0 && rest <= 1.0;
  return {static_cast<uint32_t>(__builtin_bit_cast(uint64_t, shifted)),
          static_cast<float>(is_inside ? rest : x - x)};
}
REWIND_INLINE float sine_of(Quarters q) {
  const float square = q.rest * q.rest;
  const float sine =
      mul_add(q.rest * square,
              polynomial(square, -1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f), q.rest);
  const float bend =
      polynomial(square, -4.166664568298827e-2f, 1.388731625493765e-3f, -2.443315711809948e-5f);
  const float cosine = 1.0f - mul_add(square * square, bend, 0.5f * square);
  const float y = (q.n & 1u) != 0 ? cosine : sine;
  return float_of(bits_of(y) ^ (q.n & 2u) << 30);
}
REWIND_INLINE float sin(float x) {
  return sine_of(quarters(x));
}
REWIND_INLINE float cos(float x) {
  const auto [n, rest] = quarters(x);
  return sine_of({n + 1, rest});
}

// The same by the C library, for numbers beyond `most_turned`, one by one.
REWIND_INLINE double sin(double x) {
  return __builtin_sin(x);
}
REWIND_INLINE double cos(double x) {
  return __builtin_cos(x);
}

// Splits a normal x into 2^n (1 + rest), with 1 + rest from sqrt(1/2) to sqrt(2).
struct Exponent {
  float n, rest;
};
REWIND_INLINE Exponent exponent_of(float x) {
  const uint32_t root = 0x3f3504f3u;  // sqrt(1/2)
  const uint32_t above = bits_of(x) - root;
  const float n = static_cast<float>(static_cast<int32_t>(above) >> 23);
  return {n, float_of((above & 0x7fffffu) + root) - 1.0f};
}

// Returns log(1 + f) for f of sqrt(1/2) - 1 to sqrt(2) - 1.
REWIND_INLINE double wide_log1p(double f) {
  const double s = f / (2.0 + f), square = s * s;
  double series = 1.0 / 17;
#pragma GCC unroll 8
  for (int k = 15; k > 0; k -= 2) series = series * square + 1.0 / k;
  return 2.0 * s * series;
}
// Returns exp(x) for |x| of at most 700, with `terms` terms: 9 have errors of 1e-11, 12 of 1e-16.
template <int terms>
REWIND_INLINE double wide_exp(double x) {
  const double shift = 0x1.8p52, shifted = x * 1.4426950408889634 + shift, n = shifted - shift;
  const double rest = x - n * 0.69314718055994531;
  double power = 1.0;
#pragma GCC unroll 12
  for (int k = terms; k > 0; --k) power = power * rest / k + 1.0;
  const uint64_t scale = (__builtin_bit_cast(uint64_t, shifted) + 1023) << 52;
  return power * __builtin_bit_cast(double, scale);
}

// Computes in doubles, since y multiplies the error of the logarithm.
REWIND_INLINE float wide_pow(float x, double y) {
  const float base = abs(x);
  const bool is_small = base < 0x1p-126f;
  const auto [e, f] = exponent_of(is_small ? base * 0x1p24f : base);
  const double normal = (is_small ? e - 24.0f : e) * 0.69314718055994531 + wide_log1p(f);
  const double log_of_base = base == 0.0f ? -infinity : base < infinity ? normal : base;
  const double product = y * log_of_base, bounded = product > 90.0 ? 90.0 : product;
  float r = static_cast<float>(wide_exp<9>(bounded < -110.0 ? -110.0 : bounded));
  // Floats, since masks of double and of float together are no vectors.
  const double whole = __builtin_floor(y);
  const float exponent = static_cast<float>(y), fraction = static_cast<float>(y - whole);
  const float odd = static_cast<float>(whole - 2.0 * __builtin_floor(y * 0.5));
  const bool is_odd = odd == 1.0f && !(fraction > 0.0f), is_negative = bits_of(x) >> 31 != 0;
  r = base == 1.0f && exponent == exponent ? 1.0f : r;
  r = x < 0.0f && base < infinity && fraction > 0.0f ? nan : r;
  r = is_negative && is_odd ? -r : r;
  return exponent == 0.0f || x == 1.0f ? 1.0f : r;
}
REWIND_INLINE float pow(float x, float y) {
  return wide_pow(x, y);
}
REWIND_INLINE float pow_grad(float x, float y) {
  const float slope = y * wide_pow(x, y - 1.0);
  return y == 0.0f ? 0.0f : slope;
}

REWIND_INLINE float divide(float x, float y) {
  return x / y;
}

// Return the remainder of x / y truncated toward zero, and of x / y rounded down, which has the
// sign of y.
REWIND_INLINE float modulo(float x, float y) {
  return __builtin_fmodf(x, y);
}
REWIND_INLINE float floor_modulo(float x, float y) {
  const float rest = modulo(x, y);
  return rest != 0.0f && (rest < 0.0f) != (y < 0.0f) ? rest + y : rest;
}

// Computes in doubles, since the terms cancel where exp(x) + exp(y) is about 1.
REWIND_INLINE float log_add_exp(float x, float y) {
  const double high = max(x, y), distance = __builtin_fabs(double{x} - double{y});
  const double e = wide_exp<12>(distance < 700.0 ? -distance : -700.0);
  const bool is_above = e > 0.41421356237309505;
  const double low =
      wide_log1p(is_above ? 0.5 * e - 0.5 : e) + (is_above ? 0.69314718055994531 : 0.0);
  const double sum = distance != distance ? high + distance : high + low;
  return static_cast<float>(x == y ? x + 0.69314718055994531 : sum);
}

// ---- integers, in 64 bits, so that nothing overflows before it wraps -----------------------

REWIND_INLINE int64_t max(int64_t x, int64_t y) {
  return x < y ? y : x;
}
REWIND_INLINE int64_t min(int64_t x, int64_t y) {
  return y < x ? y : x;
}
// A negative power of anything but 1 and -1 is 0.
REWIND_INLINE int64_t pow(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? 1 - 2 * (y & 1) : 0;
  uint32_t r = 1, base = static_cast<uint32_t>(x);
  for (; y > 0; y >>= 1, base *= base)
    if (y & 1) r *= base;
  return static_cast<int32_t>(r);
}
REWIND_INLINE int64_t divide(int64_t x, int64_t y) {
  return y == 0 ? 0 : x / y;
}
REWIND_INLINE int64_t modulo(int64_t x, int64_t y) {
  return y == 0 ? 0 : x % y;
}
REWIND_INLINE int64_t floor_modulo(int64_t x, int64_t y) {
  const int64_t rest = modulo(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

}  // namespace rw::cpu::REWIND_LEVEL
