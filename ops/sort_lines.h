// Sorting without a record.
#pragma once

#include "../core/tensor/tensor.h"

namespace rw::detail {

// The keys and places of x [lines, count], sorted along the lines.
struct Sorted {
  Tensor key, order;
};
Sorted sort_lines(const Tensor& x, bool descending);

}  // namespace rw::detail
