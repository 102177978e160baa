// What losses of classes share.
#pragma once

#include "../../core/tensor/tensor.h"

namespace rw::detail {

// How many targets are not ignored, at least 1: f32 scalar.
Tensor count_valid(const Tensor& target, int ignore_index);

}  // namespace rw::detail
