// Second derivatives of the rows of UNARY.
#pragma once

#include "../ops.h"

namespace rw::detail {

// Returns the derivative of a row's slope (its gradient over dy) by the value s that the row saves,
// in public ops; undefined if it is 0 everywhere. a and b are the row's numbers.
Tensor curvature(uint32_t row, const Tensor& s, float a, float b);

}  // namespace rw::detail
