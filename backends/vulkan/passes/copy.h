// Strided copies on a device.
#pragma once

#include "../../../shaders/params.h"
#include "../device/caps.h"
#include "passes.h"

namespace rw::vulkan {

// y[...] = cast(x[...]): of dense tensors eight elements at a time; by words of eight where the
// last dimension is dense in both; by tiles where a GPU turns a matrix; else by single elements.
void add_copy(Passes& passes, const Caps& caps, kernels::CopyParams p, const Operand& x,
              const Operand& y);

}  // namespace rw::vulkan
