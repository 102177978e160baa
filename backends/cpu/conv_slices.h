// Gradients of convolutions of few pixels and many weights.
#pragma once

#include <memory>

#include "plan.h"

namespace rw::cpu {

// A plan of conv2d_dgrad or conv2d_wgrad whose pieces are some channels of all images; null where
// pieces of images suit the call better.
std::shared_ptr<const Plan> plan_slices(const KernelCall& call);

}  // namespace rw::cpu
