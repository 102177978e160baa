// What to do when training needs more memory than there is, tried in dry runs first.
#pragma once

#include <string>
#include <vector>

#include "apps/common/planner.h"

namespace rw {

struct Remedy {
  std::string options;    // to add to the command line
  StepSettings settings;  // that they mean
  StepForecast forecast;
};
// Changes of the program's settings that fit in `memory_limit` bytes (0: in the device).
std::vector<Remedy> find_remedies(const Planner& planner, const PlannedProgram& program,
                                  uint64_t memory_limit);

// For the end of an error message: the remedies with their numbers, or that there is none.
std::string remedies_text(const Planner& planner, const PlannedProgram& program,
                          uint64_t memory_limit);

}  // namespace rw
