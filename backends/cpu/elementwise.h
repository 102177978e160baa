// The rows of shaders/elementwise.def as C++ functions, for float and for double.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace rw::cpu {

namespace elementwise {  // the names that the table's expressions use

using std::abs, std::ceil, std::cos, std::erf, std::exp, std::floor, std::log, std::pow, std::sin,
    std::sqrt, std::tanh;

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

}  // namespace elementwise

// Number of rows, for checks of an op's id.
enum : uint32_t {
  unary_ops = 0
#define UNARY(id, name, forward, grad, saves, lo, hi) +1
#include "shaders/elementwise.def"
  ,
  binary_ops = 0
#define BINARY(id, name, forward) +1
#include "shaders/elementwise.def"
  ,
  compare_ops = 0
#define COMPARE(id, name, forward) +1
#include "shaders/elementwise.def"
};

template <class T>
T apply_unary(uint32_t op, T x, [[maybe_unused]] T a, [[maybe_unused]] T b) {
  using namespace elementwise;
  switch (op) {
#define UNARY(id, name, forward, grad, saves, lo, hi) \
  case id:                                            \
    return forward;
#include "shaders/elementwise.def"
  }
  return T(0);
}

// s: the op's input or output, as the table's row says.
template <class T>
T apply_unary_grad(uint32_t op, T s, T dy, [[maybe_unused]] T a, [[maybe_unused]] T b) {
  using namespace elementwise;
  switch (op) {
#define UNARY(id, name, forward, grad, saves, lo, hi) \
  case id:                                            \
    return grad;
#include "shaders/elementwise.def"
  }
  return T(0);
}

template <class T>
T apply_binary(uint32_t op, T x, T y) {
  using namespace elementwise;
  switch (op) {
#define BINARY(id, name, forward) \
  case id:                        \
    return forward;
#include "shaders/elementwise.def"
  }
  return T(0);
}

template <class T>
bool apply_compare(uint32_t op, T x, T y) {
  switch (op) {
#define COMPARE(id, name, forward) \
  case id:                         \
    return forward;
#include "shaders/elementwise.def"
  }
  return false;
}

// Whether a row's gradient reads s: only then does the caller bind something meaningful to it.
inline bool unary_grad_reads_saved(uint32_t op) {
  enum { SAVE_NONE = 0, SAVE_X = 1, SAVE_Y = 1 };
  switch (op) {
#define UNARY(id, name, forward, grad, saves, lo, hi) \
  case id:                                            \
    return saves != SAVE_NONE;
#include "shaders/elementwise.def"
  }
  return false;
}

}  // namespace rw::cpu
