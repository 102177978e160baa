// Matrix products and convolutions, as passes of several shader modules.
#pragma once

#include <memory>

#include "../../../core/backend/backend.h"
#include "../device/caps.h"
#include "../device/matrix_choice.h"
#include "../passes/passes.h"

namespace rw::vulkan {

// The passes of matmul, conv2d, conv2d_dgrad or conv2d_wgrad by the given choice.
std::shared_ptr<const Passes> compose(const KernelCall& call, const Caps& caps,
                                      const Choice& choice);
// The same passes by the choice that REWIND_MATMUL or the device's tuning makes.
void add_product(Passes& passes, const Caps& caps, const KernelCall& call);

}  // namespace rw::vulkan
