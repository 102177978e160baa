// A page that shows the report of a run.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "../../core/memory/memory_trace.h"

namespace rw {

// Draws curves of all losses, accuracies, errors and rates in the "history" and the "evaluations"
// of a report, or of each of its "runs", and shows the run's memory, what saved how much, and all
// other figures. `has_timeline`: beside it is a page of the memory, memory.html.
std::string run_page(const nlohmann::json& report, bool has_timeline);

}  // namespace rw
