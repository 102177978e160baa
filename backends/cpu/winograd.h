// Convolutions of 3 x 3 pixels and their gradients by loops of ours, with fewer multiplications.
#pragma once

#include <memory>

#include "prepared_call.h"

namespace rw::cpu {

// Returns null if Winograd's form does not suit the call, or no level of vector loops is in use.
std::shared_ptr<const PreparedCall> prepare_winograd(const KernelCall& call);

}  // namespace rw::cpu
