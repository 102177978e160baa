// Remedies for training that needs more memory than the device has. Dry runs try each remedy first.
#pragma once

#include <string>
#include <vector>

#include "planner.h"

namespace rw {

// A change of a program's settings that makes it fit.
struct Remedy {
  std::string options;    // as TrainingProgram::words spell them
  StepSettings settings;  // that the options mean
  Forecast forecast;      // of a step with these settings
};
// Changes of `settings` that fit in `memory_limit` bytes (0: in the device's memory).
std::vector<Remedy> find_remedies(const Planner& planner, const StepSettings& settings,
                                  uint64_t memory_limit);

// The end of an error message: the remedies with their numbers, or that there is none.
std::string remedies_text(const Planner& planner, const StepSettings& settings,
                          uint64_t memory_limit);

}  // namespace rw
