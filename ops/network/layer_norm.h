// Shared by normalisations.
#pragma once

#include "../../core/tensor/tensor.h"

namespace rw::detail {

// A normalisation's `weight` [C], checked against x [..., C], as f32, or `value` if it is
// undefined.
Tensor per_channel(const Tensor& weight, float value, const Tensor& x, const char* op);

}  // namespace rw::detail
