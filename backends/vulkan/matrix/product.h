// Matrix products and convolutions without their tensors, as lines of text: a run logs those that
// it asks for, and `tune` measures them.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "../../../core/backend/backend.h"

namespace rw::vulkan {

// A call of matmul, conv2d, conv2d_dgrad or conv2d_wgrad.
struct Product {
  std::string kernel;
  std::array<Binding, 3> bindings;  // of no block, with the size that the call needs
  std::vector<std::byte> params;

  // Returns a call with views of this one.
  KernelCall call() const { return {.kernel = kernel, .bindings = bindings, .params = params}; }
};

// "matmul f32 f32 f32", then the parameters as numbers.
std::string line_of(const KernelCall& call);
// Throws ValueError for a line that line_of() does not write, and for parameters that no op has.
Product parse_product(std::string_view line);

// Appends the call's line to the file that REWIND_TUNE_LOG names; does nothing if it is not set.
void log_product(const KernelCall& call);

}  // namespace rw::vulkan
