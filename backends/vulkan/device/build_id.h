// Identifies the shaders of this build; shaders/compiler/compile.py defines it.
#pragma once

#include <cstdint>

namespace rw::vulkan {

uint64_t build_id();  // of all shaders: it differs between builds that compiled different shaders

}  // namespace rw::vulkan
