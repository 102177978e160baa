// Functions of f32 without branches, so that loops over them become vectors. They are within 2 ulp
// of the true values, and right for NaN, infinities and denormals. The rows of
// shaders/elementwise.def use these names.
#pragma once

#include "halves.h"

namespace rw::cpu::REWIND_LEVEL {

constexpr float infinity = __builtin_inff(), nan = __builtin_nanf("");

inline float abs(float x) {
  return __builtin_fabsf(x);
}
inline float sqrt(float x) {
  return __builtin_sqrtf(x);
}
inline float floor(float x) {
  return __builtin_floorf(x);
}
inline float ceil(float x) {
  return __builtin_ceilf(x);
}
inline float trunc(float x) {
  return __builtin_truncf(x);
}
inline float round_even(float x) {
  return __builtin_nearbyintf(x);
}
inline float copy_sign(float x, float sign) {
  return __builtin_copysignf(x, sign);
}

// A NaN wins, as in PyTorch.
inline float max(float x, float y) {
  return x < y || y != y ? y : x;
}
inline float min(float x, float y) {
  return y < x || y != y ? y : x;
}

// Computes c[0] + x (c[1] + x (c[2] + ...)).
template <int n>
inline float polynomial(const float (&c)[n], float x) {
  float y = c[n - 1];
#pragma GCC unroll 16
  for (int i = n - 2; i >= 0; --i) y = mul_add(y, x, c[i]);
  return y;
}

// Returns 2^n for n of -126 to 127.
inline float power_of_two(int32_t n) {
  return float_of(static_cast<uint32_t>(n + 127) << 23);
}

// Splits x into n ln 2 + rest, for |x| of at most 2^20.
struct Logarithms {
  int32_t n;
  float rest;
};
inline Logarithms whole_logarithms(float x) {
  const float shift = 0x1.8p23f;  // a float that is larger by this is rounded to whole numbers
  const float shifted = mul_add(x, 1.44269504f, shift), n = shifted - shift;
  const float rest = mul_add(n, -1.42860677e-6f, mul_add(n, -0.693145752f, x));
  return {static_cast<int32_t>(bits_of(shifted) - bits_of(shift)), rest};
}

// Computes (exp(x) - 1 - x) / x^2 for |x| <= ln(2) / 2.
inline float exp_rest(float x) {
  constexpr float c[] = {0.5f,           1.66666672e-1f, 4.16664891e-2f,
                         8.33329465e-3f, 1.39465591e-3f, 1.98872353e-4f};
  return polynomial(c, x);
}

inline float exp(float x) {
  const float within = x > 89.0f ? 89.0f : x < -104.5f ? -104.5f : x;
  const auto [n, rest] = whole_logarithms(within);
  const float y = 1.0f + mul_add(rest * rest, exp_rest(rest), rest);
  const int32_t half = n >> 1;  // 2^n may not be a float
  return y * power_of_two(half) * power_of_two(n - half);
}

// Returns exp(x) for x of at most 0, and 0 where that would be denormal.
inline float exp_below(float x) {
  const auto [n, rest] = whole_logarithms(x < -87.0f ? -87.0f : x);
  const float y = (1.0f + mul_add(rest * rest, exp_rest(rest), rest)) * power_of_two(n);
  return x < -87.0f ? 0.0f : y;
}

inline float expm1(float x) {
  const float within = x > 89.0f ? 89.0f : x < -18.0f ? -18.0f : x;
  const auto [n, rest] = whole_logarithms(within);
  const float y = mul_add(rest * rest, exp_rest(rest), rest);
  const float half = power_of_two(n - 1);
  return 2.0f * mul_add(half, y, half - 0.5f);
}

// Splits a normal x into 2^n (1 + rest), with 1 + rest from sqrt(1/2) to sqrt(2).
struct Exponent {
  float n, rest;
};
inline Exponent exponent_of(float x) {
  const uint32_t root = 0x3f3504f3u;  // sqrt(1/2)
  const uint32_t above = bits_of(x) - root;
  const float n = static_cast<float>(static_cast<int32_t>(above) >> 23);
  return {n, float_of((above & 0x7fffffu) + root) - 1.0f};
}

inline float log(float x) {
  const bool is_small = x < 0x1p-126f;
  const auto [e, f] = exponent_of(is_small ? x * 0x1p24f : x);
  const float n = is_small ? e - 24.0f : e;
  constexpr float c[] = {3.3333331174e-1f,  -2.4999993993e-1f, 2.0000714765e-1f,
                         -1.6668057665e-1f, 1.4249322787e-1f,  -1.2420140846e-1f,
                         1.1676998740e-1f,  -1.1514610310e-1f, 7.0376836292e-2f};
  const float square = f * f;
  const float tail = mul_add(n, -2.12194440e-4f, f * square * polynomial(c, f));
  const float y = mul_add(n, 0.693359375f, f + mul_add(square, -0.5f, tail));
  const float special = x == 0.0f ? -infinity : x < 0.0f ? nan : x;
  return x > 0.0f && x < infinity ? y : special;
}

// Returns log(1 + x), also for small x: adds again what rounding 1 + x loses.
inline float log1p(float x) {
  const float y = 1.0f + x, lost = x - (y - 1.0f);
  return y == infinity || y == 0.0f ? log(y) : log(y) + lost / y;
}

inline float tanh(float x) {
  const float most = 10.0f, size = abs(x);
  const float y = expm1(2.0f * (size > most ? most : size));
  return copy_sign(y / (y + 2.0f), x);
}

// Uses N. Juffa's polynomials.
inline float erf(float x) {
  constexpr float small[] = {1.28379166e-1f,  -3.76125336e-1f, 1.12819925e-1f,
                             -2.67681349e-2f, 4.99119423e-3f,  -5.96761703e-4f};
  constexpr float large[] = {-1.28717512e-1f, -6.34846687e-1f, -1.06777877e-1f, 2.42546219e-2f,
                             -3.88396438e-3f, 3.83197126e-4f,  -1.72853470e-5f};
  const float size = abs(x);
  const float near = mul_add(polynomial(small, x * x), x, x);
  const float within = size > 4.0f ? 4.0f : size;  // erf is 1 from 3.92 on
  const float power = mul_add(polynomial(large, within), within, -within);
  return size > 0.927734375f ? copy_sign(1.0f - exp(power), x) : near;
}

// Uses the approximation of M. Giles, "Approximating the erfinv function" (2012).
inline float erfinv(float x) {
  constexpr float inner[] = {1.50140941f,     0.246640727f,    -0.00417768164f,
                             -0.00125372503f, 0.000218580870f, -4.39150654e-6f,
                             -3.5233877e-6f,  3.43273939e-7f,  2.81022636e-8f};
  constexpr float outer[] = {2.83297682f,    1.00167406f,     0.00943887047f,
                             -0.0076224613f, 0.00573950773f,  -0.00367342844f,
                             0.00134934322f, 0.000100950558f, -0.000200214257f};
  const float w = -log((1.0f - x) * (1.0f + x)), root = sqrt(w) - 3.0f;
  const float y = x * (w < 5.0f ? polynomial(inner, w - 2.5f) : polynomial(outer, root));
  return abs(x) == 1.0f ? x * infinity : y;
}

// Reduces x by whole quarters of a turn and counts them; the result is as exact as f32 up to 5e8,
// and some number of at most 1 beyond.
struct Quarters {
  uint32_t n;
  float rest;
};
inline Quarters quarters(double x) {
  const double shift = 0x1.8p52, shifted = x * 0.63661977236758134 + shift, n = shifted - shift;
  const double rest = x - n * 1.5707963267341256 - n * 6.0771005065061922e-11;
  const bool is_inside = rest >= -1.0 && rest <= 1.0;
  return {static_cast<uint32_t>(__builtin_bit_cast(uint64_t, shifted)),
          static_cast<float>(is_inside ? rest : x - x)};
}
inline float sine_of(Quarters q) {
  constexpr float of_sine[] = {-1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f};
  constexpr float of_cosine[] = {4.166664568298827e-2f, -1.388731625493765e-3f,
                                 2.443315711809948e-5f};
  const float square = q.rest * q.rest;
  const float sine = mul_add(q.rest * square, polynomial(of_sine, square), q.rest);
  const float cosine =
      mul_add(square * square, polynomial(of_cosine, square), mul_add(square, -0.5f, 1.0f));
  const float y = (q.n & 1u) != 0 ? cosine : sine;
  return float_of(bits_of(y) ^ (q.n & 2u) << 30);
}
inline float sin(float x) {
  return sine_of(quarters(x));
}
inline float cos(float x) {
  const auto [n, rest] = quarters(x);
  return sine_of({n + 1, rest});
}

// Computes in doubles, since y multiplies the error of the logarithm.
inline float pow(float x, float y) {
  const float base = abs(x);
  const bool is_small = base < 0x1p-126f;
  const auto [e, f] = exponent_of(is_small ? base * 0x1p24f : base);
  const double s = f / (2.0 + f), square = s * s;
  double series = 1.0 / 17;
#pragma GCC unroll 8
  for (int k = 15; k > 0; k -= 2) series = series * square + 1.0 / k;
  const double normal = (is_small ? e - 24.0 : e) * 0.69314718055994531 + 2.0 * s * series;
  const double log_of_base = base == 0.0f ? -infinity : base < infinity ? normal : base;
  const double product = y * log_of_base;
  const double t = product > 90.0 ? 90.0 : product < -110.0 ? -110.0 : product;
  const double shift = 0x1.8p52, shifted = t * 1.4426950408889634 + shift, n = shifted - shift;
  const double rest = t - n * 0.69314718055994531;
  double power = 1.0;
#pragma GCC unroll 10
  for (int k = 9; k > 0; --k) power = power * rest / k + 1.0;
  const uint64_t scale = (__builtin_bit_cast(uint64_t, shifted) + 1023) << 52;
  float r = static_cast<float>(power * __builtin_bit_cast(double, scale));
  const bool is_whole = floor(y) == y, is_odd = is_whole && floor(y * 0.5f) * 2.0f != y;
  const bool is_negative = bits_of(x) >> 31 != 0;
  r = base == 1.0f && y == y ? 1.0f : r;
  r = x < 0.0f && base < infinity && !is_whole ? nan : r;
  r = is_negative && is_odd ? -r : r;
  return y == 0.0f || x == 1.0f ? 1.0f : r;
}

// Return the remainder of x / y truncated toward zero, and of x / y rounded down, which has the
// sign of y.
inline float modulo(float x, float y) {
  return __builtin_fmodf(x, y);
}
inline float floor_modulo(float x, float y) {
  const float rest = modulo(x, y);
  return rest != 0.0f && (rest < 0.0f) != (y < 0.0f) ? rest + y : rest;
}

inline float log_add_exp(float x, float y) {
  const float sum = max(x, y) + log1p(exp(-abs(x - y)));
  return x == y ? x + 0.69314718f : sum;
}

inline float silu_grad(float x) {
  const float sigmoid = 1.0f / (1.0f + exp(-x));
  return sigmoid * (1.0f + x * (1.0f - sigmoid));
}

// Returns Phi(x) + x * phi(x) of the normal distribution.
inline float gelu_grad(float x) {
  return 0.5f * (1.0f + erf(x * 0.70710678f)) + x * 0.39894228f * exp(-0.5f * x * x);
}

inline float gelu_tanh_grad(float x) {
  const float scale = 0.79788456f, cubic = 0.044715f;
  const float t = tanh(scale * (x + cubic * x * x * x));
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * scale * (1.0f + 3.0f * cubic * x * x);
}

inline float hardswish_grad(float x) {
  return x <= -3.0f ? 0.0f : x >= 3.0f ? 1.0f : x / 3.0f + 0.5f;
}

inline float tanh_softplus(float x) {
  return x > 20.0f ? 1.0f : tanh(log(1.0f + exp(x)));
}
inline float mish_grad(float x) {
  const float t = tanh_softplus(x);
  return t + x * (1.0f - t * t) / (1.0f + exp(-x));
}

// ---- integers, in 64 bits, so that nothing overflows before it wraps -----------------------

inline int64_t max(int64_t x, int64_t y) {
  return x < y ? y : x;
}
inline int64_t min(int64_t x, int64_t y) {
  return y < x ? y : x;
}
// A negative power of anything but 1 and -1 is 0.
inline int64_t pow(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? 1 - 2 * (y & 1) : 0;
  uint32_t r = 1, base = static_cast<uint32_t>(x);
  for (; y > 0; y >>= 1, base *= base)
    if (y & 1) r *= base;
  return static_cast<int32_t>(r);
}
inline int64_t modulo(int64_t x, int64_t y) {
  return y == 0 ? 0 : x % y;
}
inline int64_t floor_modulo(int64_t x, int64_t y) {
  const int64_t rest = modulo(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

}  // namespace rw::cpu::REWIND_LEVEL
