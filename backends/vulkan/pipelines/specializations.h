// The values of its specialization constants that a module may be asked for on a device. The
// shaders' declarations are the one place that defines them. A pipeline with other values is an
// error, so what is compiled and counted ahead of time (statistics.h) is complete.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "../device/caps.h"
#include "../device/shader_table.h"

namespace rw::vulkan {

// All combinations, in order; one without values if there are no constants. Empty if no call on
// this device runs the module.
std::vector<std::vector<uint32_t>> specializations(const Shader& shader, const Caps& caps);

// A call's variant as the module has it: constants that the call leaves out have their defaults,
// and values that the module has no constants for (stand-ins have fewer) are dropped. ValueError
// unless it is one of specializations().
std::vector<uint32_t> specialization(const Shader& shader, const Caps& caps,
                                     std::span<const uint32_t> variant);

// "OP=3 FLAT=1", or empty if there are no constants.
std::string describe(const Shader& shader, std::span<const uint32_t> values);

}  // namespace rw::vulkan
