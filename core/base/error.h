// Typed errors. Every message reads `[op] what must hold, got A and B` and says what to do.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace rw {

// The base of all exceptions of this library.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ShapeError : Error {
  using Error::Error;
};  // shapes, ranks, axes
struct DTypeError : Error {
  using Error::Error;
};  // element types
struct DeviceError : Error {
  using Error::Error;
};  // drivers, devices, tensors of two devices
struct ValueError : Error {
  using Error::Error;
};  // options and scalar arguments
struct FileError : Error {
  using Error::Error;
};  // missing, truncated or malformed files
struct AutogradError : Error {
  using Error::Error;
};  // misuse of tape, segments, gradients
struct NumericsError : Error {
  using Error::Error;
};  // NaN or infinite where a finite value is needed
struct OutOfMemory : Error {
  using Error::Error;
};  // arena limit or device memory exhausted
struct RankError : Error {
  using Error::Error;
};  // MPI, and processes that train one model but do not agree

// An object that describes itself by str() (a shape, tensor, device), as a part of messages.
template <class T>
concept Describable = requires(const T& t) {
  { t.str() } -> std::same_as<std::string>;
};
template <class T>
struct Described {
  const T& value;  // not owned
};
template <class T>
decltype(auto) described(T&& t) {
  if constexpr (Describable<std::remove_cvref_t<T>>)
    return Described<std::remove_cvref_t<T>>{t};
  else
    return std::forward<T>(t);
}
template <class T>
using Shown =
    std::conditional_t<Describable<std::remove_cvref_t<T>>, Described<std::remove_cvref_t<T>>, T>;
template <class... Args>
using Message = fmt::format_string<Shown<Args>...>;

}  // namespace rw

template <class T>
struct fmt::formatter<rw::Described<T>> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  auto format(const rw::Described<T>& described, fmt::format_context& context) const {
    const std::string text = described.value.str();
    return std::copy(text.begin(), text.end(), context.out());
  }
};

namespace rw {

// The op or function that a message names: a name, which outlives the check, or the op that runs.
// It is looked up only when there is a message.
class OpName {
 public:
  OpName(const char* name) : data_(name) {}
  OpName(std::string_view name) : data_(name.data()), size_(name.size()) {}
  OpName(const std::string& name) : OpName(std::string_view(name)) {}

  std::string_view text() const;  // of a running op: its name now

 private:
  friend OpName op_or(const char* function);
  static constexpr size_t up_to_zero = SIZE_MAX, running = SIZE_MAX - 1;

  const char* data_;
  size_t size_ = up_to_zero;  // or `running`, and up to zero: two words, which cost a check nothing
};

// Returns the op that runs on this thread, or `function` itself if a user calls it.
inline OpName op_or(const char* function) {
  OpName name(function);
  name.size_ = OpName::running;
  return name;
}

// Throws E("[op] message").
template <class E = ValueError, class... Args>
[[noreturn]] void fail(OpName op, Message<Args...> message, Args&&... args) {
  throw E(fmt::format("[{}] {}", op.text(),
                      fmt::format(message, described(std::forward<Args>(args))...)));
}

// Throws the same unless `ok`. Arguments are evaluated in any case: pass values (a tensor, a
// shape), not texts made from them.
template <class E = ValueError, class... Args>
void check(bool ok, OpName op, Message<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]]
    fail<E>(op, message, std::forward<Args>(args)...);
}

}  // namespace rw
