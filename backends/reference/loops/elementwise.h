// The rows of shaders/elementwise.def as C++ functions, for float and for double.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace rw::reference {

namespace elementwise {  // has the names that the table's expressions use

using std::abs, std::ceil, std::cos, std::erf, std::exp, std::expm1, std::floor, std::log, std::sin,
    std::sqrt, std::tanh, std::trunc;

// A NaN wins, as in PyTorch.
template <class T, class U>
std::common_type_t<T, U> max(T x, U y) {
  return x < y || y != y ? y : x;
}
template <class T, class U>
std::common_type_t<T, U> min(T x, U y) {
  return y < x || y != y ? y : x;
}

template <class T>
T silu_grad(T x) {
  const T sigmoid = T(1) / (T(1) + exp(-x));
  return sigmoid * (T(1) + x * (T(1) - sigmoid));
}

// Phi(x) + x * phi(x) of the normal distribution.
template <class T>
T gelu_grad(T x) {
  return T(0.5) * (T(1) + erf(x * T(0.70710678118654752))) +
         x * T(0.39894228040143268) * exp(T(-0.5) * x * x);
}

template <class T>
T gelu_tanh_grad(T x) {
  const T scale = T(0.79788456080286536), cubic = T(0.044715);
  const T t = tanh(scale * (x + cubic * x * x * x));
  return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * scale * (T(1) + T(3) * cubic * x * x);
}

// Rounds to the nearest integer, halfway cases to even.
template <class T>
T round_even(T x) {
  return std::nearbyint(x);
}

// Newton's method on erf, from Winitzki's approximation.
template <class T>
T erfinv(T x) {
  if (abs(x) == 1) return x * std::numeric_limits<T>::infinity();
  const double log_term = std::log((1 - double{x}) * (1 + double{x}));
  const double a = 0.147, b = 2 / (3.14159265358979 * a) + log_term / 2;
  double y = std::copysign(std::sqrt(std::sqrt(b * b - log_term / a) - b), double{x});
  for (int step = 0; step < 6; ++step) y -= (erf(y) - double{x}) * 0.88622692545275801 * exp(y * y);
  return static_cast<T>(y);
}

template <class T>
T hardswish_grad(T x) {
  return x <= -3 ? T(0) : x >= 3 ? T(1) : x / 3 + T(0.5);
}

template <class T>
T tanh_softplus(T x) {
  return x > 20 ? T(1) : tanh(log(T(1) + exp(x)));
}
template <class T>
T mish_grad(T x) {
  const T t = tanh_softplus(x);
  return t + x * (T(1) - t * t) / (T(1) + exp(-x));
}

template <class T, class U>
auto pow(T x, U y) {
  return std::pow(x, y);
}
// The result wraps like the kernels' 32 bits; a negative power of anything but 1 and -1 is 0.
inline int64_t pow(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? 1 - 2 * (y & 1) : 0;
  uint32_t r = 1, base = static_cast<uint32_t>(x);
  for (; y > 0; y >>= 1, base *= base)
    if (y & 1) r *= base;
  return static_cast<int32_t>(r);
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

template <class T>
T log_add_exp(T x, T y) {
  const double high = max(double(x), double(y)), distance = abs(double(x) - double(y));
  return static_cast<T>(x == y ? double(x) + 0.69314718055994531
                               : high + std::log1p(exp(-distance)));
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

template <class T>
T apply_unary(uint32_t op, T x, [[maybe_unused]] T a, [[maybe_unused]] T b) {
  using namespace elementwise;
  switch (op) {
#define UNARY(id, name, forward, grad, saves, lo, hi) \
  case id:                                            \
    return forward;
#include "../../../shaders/elementwise.def"
  }
  return T(0);
}

// `s` is the op's input or output, as the table's row says.
template <class T>
T apply_unary_grad(uint32_t op, T s, T dy, [[maybe_unused]] T a, [[maybe_unused]] T b) {
  using namespace elementwise;
  switch (op) {
#define UNARY(id, name, forward, grad, saves, lo, hi) \
  case id:                                            \
    return grad;
#include "../../../shaders/elementwise.def"
  }
  return T(0);
}

template <class T>
T apply_binary(uint32_t op, T x, T y) {
  using namespace elementwise;
  switch (op) {
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) \
  case id:                                            \
    return forward;
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
