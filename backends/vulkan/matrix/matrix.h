// Matrix products and convolutions, as passes of several shader modules.
#pragma once

#include "../../../core/backend/backend.h"
#include "../device/caps.h"
#include "../device/matrix_choice.h"
#include "../passes/passes.h"

namespace rw::vulkan {

// Returns the choice that REWIND_MATMUL or the device's tuning makes for such a call.
Choice choice_for(const KernelCall& call, const Caps& caps);
// Adds the passes of matmul, conv2d, conv2d_dgrad or conv2d_wgrad by the given choice.
void add_product(Passes& passes, const Caps& caps, const KernelCall& call, const Choice& choice);
// Returns the operations of such a call.
inline double flops_of(const KernelCall& call, const Caps& caps) {
  Passes passes;
  add_product(passes, caps, call, {});
  return passes.flops();
}

}  // namespace rw::vulkan
