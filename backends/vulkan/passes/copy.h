// Strided copies on a device.
#pragma once

#include "../../../shaders/params.h"
#include "../device/caps.h"
#include "passes.h"

namespace rw::vulkan {

// Computes y[...] = cast(x[...]). Dense tensors go eight elements at a time; tensors whose last
// dimension is dense in both, by words of eight; a matrix that a GPU transposes, by tiles; and
// others by single elements.
void add_copy(Passes& passes, const Caps& caps, kernels::CopyParams p, const Operand& x,
              const Operand& y);

}  // namespace rw::vulkan
