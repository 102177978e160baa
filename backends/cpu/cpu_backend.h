// The cpu backend: the readable definition of every kernel, and the fallback without Vulkan.
#pragma once

#include <memory>

#include "../../core/backend/backend.h"

namespace rw {

// Runs every call at once. New memory is filled with 0xFF bytes (NaN), so that reading what nobody
// wrote shows.
std::unique_ptr<Backend> make_cpu_backend();

}  // namespace rw
