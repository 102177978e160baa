// Reports of the driver's compiler about every pipeline that this device may be asked for.
#pragma once

#include <string>
#include <vector>

#include "../../../core/backend/backend.h"

namespace rw::vulkan {

// Compiles them, on a device of its own: a driver may compile differently when it must
// report (VK_KHR_pipeline_executable_properties), so kernels that run are not made this way.
// `choice` and `without` are as in make_backend(); `text` and `only` as in
// Backend::pipeline_statistics(). Throws Unsupported if the driver reports nothing.
std::vector<PipelineStatistics> pipeline_statistics(const std::string& choice,
                                                    const std::vector<RefusedFeature>& without,
                                                    const std::string& text,
                                                    const std::string& only);

// Finds the four numbers that people compare, among those that a driver gives under its own names.
void interpret(PipelineStatistics& statistics);

}  // namespace rw::vulkan
