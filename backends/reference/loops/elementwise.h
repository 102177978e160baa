// The rows of shaders/elementwise.def as C++ functions, in double or in int64_t.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace rw::reference {

namespace elementwise {  // has the names that the table's expressions use

using std::abs, std::ceil, std::cos, std::erf, std::exp, std::expm1, std::floor, std::log,
    std::log1p, std::sin, std::sqrt, std::tanh, std::trunc;

// A NaN wins, as in PyTorch.
template <class T, class U>
std::common_type_t<T, U> max(T x, U y) {
  return x < y || y != y ? y : x;
}
template <class T, class U>
std::common_type_t<T, U> min(T x, U y) {
  return y < x || y != y ? y : x;
}

// Formulas whose terms do not cancel, since the tests compare kernels with them. Arithmetic is in
// double whatever the tensors have.
inline double mul_add(double a, double b, double c) {
  return a * b + c;
}

inline double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}
inline double sigmoid_grad(double x) {
  return sigmoid(x) * sigmoid(-x);
}
inline double tanh_grad(double x) {
  return 1 / (std::cosh(x) * std::cosh(x));
}
inline double softplus(double x) {
  return max(x, 0.0) + log1p(exp(-abs(x)));
}

inline double silu(double x) {
  return x * sigmoid(x);
}
inline double silu_grad(double x) {
  return sigmoid(x) * (1 + x * sigmoid(-x));
}

// Phi and phi of the normal distribution.
inline double normal_share(double x) {
  return 0.5 * std::erfc(-x * 0.70710678118654752);
}
inline double normal_density(double x) {
  return 0.39894228040143268 * exp(-0.5 * x * x);
}
inline double gelu(double x) {
  return x * normal_share(x);
}
inline double gelu_grad(double x) {
  return normal_share(x) + x * normal_density(x);
}

// (1 + tanh(u)) / 2 is sigmoid(2 u).
inline double gelu_tanh_twice(double x) {
  return 1.5957691216057308 * (x + 0.044715 * x * x * x);
}
inline double gelu_tanh(double x) {
  return x * sigmoid(gelu_tanh_twice(x));
}
inline double gelu_tanh_grad(double x) {
  const double u = gelu_tanh_twice(x), rise = 1.5957691216057308 * (1 + 3 * 0.044715 * x * x);
  return sigmoid(u) * (1 + x * rise * sigmoid(-u));
}

inline double mish(double x) {
  return x * tanh(softplus(x));
}
inline double mish_grad(double x) {
  const double y = softplus(x);
  return tanh(y) + x * tanh_grad(y) * sigmoid(x);
}

constexpr double selu_scale = 1.0507009873554805, selu_alpha = 1.6732632423543772;
inline double selu(double x) {
  return selu_scale * (x > 0 ? x : selu_alpha * expm1(x));
}
inline double selu_grad(double x) {
  return selu_scale * (x > 0 ? 1 : selu_alpha * exp(x));
}

inline double erf_grad(double x) {
  return 1.1283791670955126 * exp(-x * x);
}

// Newton's method on erf, or erfc, from Winitzki's approximation.
inline double erfinv(double x) {
  const double size = abs(x);
  if (size == 1) return x * std::numeric_limits<double>::infinity();
  const double log_term = std::log((1 - size) * (1 + size));
  const double a = 0.147, b = 2 / (3.14159265358979 * a) + log_term / 2;
  double y = std::sqrt(std::sqrt(b * b - log_term / a) - b);
  for (int step = 0; step < 6; ++step) {
    const double error = size > 0.5 ? (1 - size) - std::erfc(y) : erf(y) - size;
    y -= error / erf_grad(y);
  }
  return std::copysign(y, x);
}
inline double erfinv_grad(double x) {
  const double y = erfinv(x);
  return 0.88622692545275801 * exp(y * y);
}

// Rounds to the nearest integer, halfway cases to even.
inline double round_even(double x) {
  return std::nearbyint(x);
}

inline double hardswish_grad(double x) {
  return x <= -3 ? 0 : x >= 3 ? 1 : (x + 1.5) / 3;
}

template <class T, class U>
auto pow(T x, U y) {
  return std::pow(x, y);
}
inline double pow_grad(double x, double y) {
  return y == 0 ? 0 : y * std::pow(x, y - 1);
}
// The result wraps like the kernels' 32 bits; a negative power of anything but 1 and -1 is 0.
inline int64_t pow(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? 1 - 2 * (y & 1) : 0;
  uint32_t r = 1, base = static_cast<uint32_t>(x);
  for (; y > 0; y >>= 1, base *= base)
    if (y & 1) r *= base;
  return static_cast<int32_t>(r);
}

// An integer divided by 0 is 0.
template <class T>
T divide(T x, T y) {
  if constexpr (std::is_integral_v<T>)
    return y == 0 ? 0 : x / y;
  else
    return x / y;
}
// The remainder of x / y truncated toward zero; for integers divided by 0 it is 0.
template <class T>
T modulo(T x, T y) {
  if constexpr (std::is_integral_v<T>)
    return y == 0 ? 0 : x % y;
  else
    return std::fmod(x, y);
}
// The same for x / y rounded down: it has the sign of y.
template <class T>
T floor_modulo(T x, T y) {
  const T rest = modulo(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

inline double log_add_exp(double x, double y) {
  return x == y ? x + 0.69314718055994531 : max(x, y) + log1p(exp(-abs(x - y)));
}

}  // namespace elementwise

// The number of rows, for checks of an op's id.
enum : uint32_t {
  unary_ops = 0
#define UNARY(id, name, forward, grad, saves, lo, hi) +1
#include "../../../shaders/elementwise.def"
  ,
  binary_ops = 0
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) +1
#include "../../../shaders/elementwise.def"
  ,
  compare_ops = 0
#define COMPARE(id, name, forward) +1
#include "../../../shaders/elementwise.def"
};

inline double apply_unary(uint32_t op, double x, double a, double b) {
  using namespace elementwise;
  switch (op) {
#define UNARY(id, name, forward, grad, saves, lo, hi) \
  case id:                                            \
    return forward;
#include "../../../shaders/elementwise.def"
  }
  return 0;
}

// `s` is the op's input or output, as the table's row says.
inline double apply_unary_grad(uint32_t op, double s, double dy, double a, double b) {
  using namespace elementwise;
  switch (op) {
#define UNARY(id, name, forward, grad, saves, lo, hi) \
  case id:                                            \
    return grad;
#include "../../../shaders/elementwise.def"
  }
  return 0;
}

template <class T>
T apply_binary(uint32_t op, T x, T y) {
  using namespace elementwise;
  switch (op) {
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) \
  case id:                                            \
    return static_cast<T>(forward);
#include "../../../shaders/elementwise.def"
  }
  return T(0);
}

template <class T>
bool apply_compare(uint32_t op, T x, T y) {
  switch (op) {
#define COMPARE(id, name, forward) \
  case id:                         \
    return forward;
#include "../../../shaders/elementwise.def"
  }
  return false;
}

// Tells whether a row's gradient reads `s`. Only then does the caller bind something meaningful to
// it.
inline bool unary_grad_reads_saved(uint32_t op) {
  enum { SAVE_NONE = 0, SAVE_X = 1, SAVE_Y = 1 };
  switch (op) {
#define UNARY(id, name, forward, grad, saves, lo, hi) \
  case id:                                            \
    return saves != SAVE_NONE;
#include "../../../shaders/elementwise.def"
  }
  return false;
}

}  // namespace rw::reference
