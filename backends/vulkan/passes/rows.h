// Kernels of rows on a device: softmax, layer norm and their gradients.
#pragma once

#include "../device/caps.h"
#include "passes.h"

namespace rw::vulkan {

// Takes the form that keeps a row in registers (NAME_kept, shaders/common/kept_rows.glsl) if it
// suits device and tensors, else a workgroup per row that reads the row again. The parameters begin
// with the offsets, `rows` and `cols`; the call has one constant.
void add_rows(Passes& passes, const Caps& caps, const KernelCall& call);

}  // namespace rw::vulkan
