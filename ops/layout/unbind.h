// Takes a tensor apart along an axis.
#pragma once

#include <vector>

#include "../../core/tensor/tensor.h"

namespace rw {

//! op: unbind   in: any
// Returns the slices of x along an axis, without that axis: views, as select(x, axis, i). The
// gradient is assembled in one tensor, whereas those of separate slices would each be as large as
// x; this is for packed projections of attention. ShapeError for an axis that x does not have, and
// if it is empty.
std::vector<Tensor> unbind(Tensor x, int axis = 0);

}  // namespace rw
