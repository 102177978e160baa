// Convolutions of one image, and gradients of those with many weights.
#pragma once

#include <memory>

#include "plan.h"

namespace rw::cpu {

// A plan whose pieces are some channels of all images; null where pieces of images suit the call
// better.
std::shared_ptr<const Plan> plan_slices(const KernelCall& call);

}  // namespace rw::cpu
