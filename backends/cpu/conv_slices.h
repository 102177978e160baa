// Convolutions of one image, and weight gradients with many weights.
#pragma once

#include <memory>

#include "prepared_call.h"

namespace rw::cpu {

// Returns a preparation whose pieces are some channels of all images, or null if pieces of images
// suit the call better.
std::shared_ptr<const PreparedCall> prepare_slices(const KernelCall& call);

}  // namespace rw::cpu
