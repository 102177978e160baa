// What the driver's compiler makes of every pipeline that this device may be asked for.
#pragma once

#include <string>
#include <vector>

#include "../../../core/backend/backend.h"

namespace rw::vulkan {

// Compiles all of them, on a device of its own: a driver may compile otherwise when it is asked to
// tell (VK_KHR_pipeline_executable_properties), so kernels that run are not made this way. `choice`
// and `without` as of make_backend(); `text` as of Backend::pipeline_statistics(). Throws
// Unsupported where the driver tells nothing.
std::vector<PipelineStatistics> pipeline_statistics(const std::string& choice,
                                                    const std::vector<RefusedFeature>& without,
                                                    const std::string& text);

// The four numbers that people compare, found among those that a driver gives under its own names.
void interpret(PipelineStatistics& statistics);

}  // namespace rw::vulkan
