// Identifies the shaders of this build; shaders/compile.py defines it.
#pragma once

#include <cstdint>

namespace rw::vulkan {

uint64_t build_id();  // of all shaders: another one in every build that compiled others

}  // namespace rw::vulkan
