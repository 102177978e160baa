// Kernels of rows on a device: softmax, layer norm and their gradients.
#pragma once

#include "../device/caps.h"
#include "passes.h"

namespace rw::vulkan {

// Take the form that keeps a row in registers (NAME_kept, shaders/common/kept_rows.glsl) if it
// suits device and tensors, else a workgroup per row that reads the row again. The call, of the
// kernel or of its gradient, has one constant.
void add_softmax(Passes& passes, const Caps& caps, const KernelCall& call);
void add_layer_norm(Passes& passes, const Caps& caps, const KernelCall& call);

}  // namespace rw::vulkan
