// The common part of the losses of classes.
#pragma once

#include "../../core/tensor/tensor.h"

namespace rw::detail {

// The number of targets that are not ignored, at least 1: f32 scalar.
Tensor count_valid(const Tensor& target, int ignore_index);

}  // namespace rw::detail
