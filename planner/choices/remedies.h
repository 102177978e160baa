// Remedies for training that needs more memory than the device has. Dry runs try each remedy first.
#pragma once

#include <string>
#include <vector>

#include "choices.h"

namespace rw {

// Changes of `settings` that fit in `memory_limit` bytes (0: in the device's memory), with complete
// forecasts.
std::vector<Choice> find_remedies(const Planner& planner, const StepSettings& settings,
                                  uint64_t memory_limit);

// The end of an error message: the remedies with their numbers, or that there is none.
std::string remedies_text(const Planner& planner, const StepSettings& settings,
                          uint64_t memory_limit);

}  // namespace rw
