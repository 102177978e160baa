// Tensors as text: std::cout << x, fmt::print("{}", x).
#pragma once

#include <fmt/format.h>

#include <iosfwd>
#include <string>

#include "../core/tensor/tensor.h"

namespace rw {

// Returns the values as PyTorch prints them, then dtype and shape: "tensor([1., 2., 3.], f32 (3))".
// Of more than 1000 elements, it shows the first and last three along each axis. Waits for the
// device; a dry run has no values. An undefined tensor is "undefined".
std::string to_string(const Tensor& t);
std::ostream& operator<<(std::ostream& stream, const Tensor& t);

}  // namespace rw

template <>
struct fmt::formatter<rw::Tensor> : fmt::formatter<std::string> {
  auto format(const rw::Tensor& t, format_context& context) const {
    return formatter<std::string>::format(rw::to_string(t), context);
  }
};
