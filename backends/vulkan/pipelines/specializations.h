// The values of its specialization constants that a module may be asked for on a device. Only the
// shaders' declarations define them. A pipeline with other values is an error, so compiling and
// counting ahead of time (statistics.h) is complete.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "../device/caps.h"
#include "../device/shader_table.h"

namespace rw::vulkan {

// Returns all combinations, in order; one without values if there are no constants. Empty if no
// call on this device runs the module.
std::vector<std::vector<uint32_t>> specializations(const Shader& shader, const Caps& caps);

// Returns a call's variant as the module has it: constants that the call leaves out have their
// defaults, and values for which the module has no constants (stand-ins have fewer) are dropped.
// ValueError unless it is one of specializations().
std::vector<uint32_t> specialization(const Shader& shader, const Caps& caps,
                                     std::span<const uint32_t> variant);

// Returns "OP=3 FLAT=1", or nothing if there are no constants.
std::string describe(const Shader& shader, std::span<const uint32_t> values);

}  // namespace rw::vulkan
