// A tensor taken apart along an axis.
#pragma once

#include <vector>

#include "../../core/tensor/tensor.h"

namespace rw {

// The slices of x along an axis, without it: views, as select(x, axis, i). The gradient is put
// together in one tensor, where those of slices would each be as large as x: for packed projections
// of attention. ShapeError for an axis that x does not have, and where it is empty.
std::vector<Tensor> unbind(Tensor x, int axis = 0);

}  // namespace rw
