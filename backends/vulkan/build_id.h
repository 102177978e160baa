// Which shaders this build has.
#pragma once

#include <cstdint>

namespace rw::vulkan {

uint64_t build_id();  // of all shaders: another one in every build that compiled others

}  // namespace rw::vulkan
