// Integer arithmetic that notices overflow, for sizes that come from users and from files, and
// integers from floats.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

namespace rw {

// Returns a * b, or nothing if T does not hold it.
template <std::integral T>
constexpr std::optional<T> checked_mul(T a, std::type_identity_t<T> b) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) return {};
  return result;
}

// Returns a + b, or nothing if T does not hold it.
template <std::integral T>
constexpr std::optional<T> checked_add(T a, std::type_identity_t<T> b) {
  T result;
  if (__builtin_add_overflow(a, b, &result)) return {};
  return result;
}

// The same for a value that may be missing already, so that products chain.
template <std::integral T>
constexpr std::optional<T> checked_mul(std::optional<T> a, std::type_identity_t<T> b) {
  return a ? checked_mul(*a, b) : a;
}
template <std::integral T>
constexpr std::optional<T> checked_add(std::optional<T> a, std::type_identity_t<T> b) {
  return a ? checked_add(*a, b) : a;
}

// Rounds x toward zero, to the nearest i32 at the ends of its range; NaN gives 0. Kernels' casts do
// the same.
inline int32_t to_i32(double x) {
  if (std::isnan(x)) return 0;
  if (x >= 2147483648.0) return std::numeric_limits<int32_t>::max();
  if (x <= -2147483648.0) return std::numeric_limits<int32_t>::min();
  return static_cast<int32_t>(x);
}

}  // namespace rw
