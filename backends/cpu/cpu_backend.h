// The cpu backend: kernels that are as fast as the processor. A call without a fast form runs the
// loop of the reference backend.
#pragma once

#include <memory>

#include "../../core/backend/backend.h"

namespace rw {

std::unique_ptr<Backend> make_cpu_backend();

}  // namespace rw
