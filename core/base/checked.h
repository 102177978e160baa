// Integer arithmetic that notices overflow: for sizes that come from users and from files.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace rw {

// a * b, or nothing where T does not hold it.
template <std::integral T>
constexpr std::optional<T> checked_mul(T a, std::type_identity_t<T> b) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) return {};
  return result;
}

// a + b, or nothing where T does not hold it.
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

}  // namespace rw
