// Typed errors. Every message reads `[op] what must hold, got A and B` and says what to do.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace rw {

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

// Throws E("[op] message") unless `ok`.
template <class E = ValueError, class... Args>
void check(bool ok, std::string_view op, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]]
    throw E(fmt::format("[{}] {}", op, fmt::format(message, std::forward<Args>(args)...)));
}

template <class E = ValueError, class... Args>
[[noreturn]] void fail(std::string_view op, fmt::format_string<Args...> message, Args&&... args) {
  throw E(fmt::format("[{}] {}", op, fmt::format(message, std::forward<Args>(args)...)));
}

}  // namespace rw
