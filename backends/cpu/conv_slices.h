// Convolutions of one image, and weight gradients with many weights.
#pragma once

#include <memory>

#include "plan.h"

namespace rw::cpu {

// Returns a plan whose pieces are some channels of all images, or null if pieces of images suit the
// call better.
std::shared_ptr<const Plan> plan_slices(const KernelCall& call);

}  // namespace rw::cpu
