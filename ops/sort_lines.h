// Sorting without a record.
#pragma once

#include <utility>

#include "../core/tensor/tensor.h"

namespace rw::detail {

// Returns the keys and the places of x [lines, count], sorted along the lines.
std::pair<Tensor, Tensor> sort_lines(const Tensor& x, bool descending);

}  // namespace rw::detail
