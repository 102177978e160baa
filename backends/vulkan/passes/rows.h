// Kernels of rows on a device: softmax, layer norm and their gradients.
#pragma once

#include "../device/caps.h"
#include "passes.h"

namespace rw::vulkan {

// By the form that keeps a row in registers (NAME_kept, shaders/kept_rows.glsl) where device and
// tensors suit it, else with a workgroup per row that reads it again. The parameters begin with the
// offsets, `rows` and `cols`; the call has one constant.
void add_rows(Passes& passes, const Caps& caps, const KernelCall& call);

}  // namespace rw::vulkan
