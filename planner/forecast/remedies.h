// What to do when training needs more memory than there is, tried in dry runs first.
#pragma once

#include <string>
#include <vector>

#include "planner.h"

namespace rw {

// A change of a program's settings with which it fits.
struct Remedy {
  std::string options;    // as the program's RemedyWords have it
  StepSettings settings;  // that they mean
  Forecast forecast;      // of a step with them
};
// Changes of `settings` that fit in `memory_limit` bytes (0: in the device).
std::vector<Remedy> find_remedies(const Planner& planner, const StepSettings& settings,
                                  uint64_t memory_limit);

// For the end of an error message: the remedies with their numbers, or that there is none.
std::string remedies_text(const Planner& planner, const StepSettings& settings,
                          uint64_t memory_limit);

}  // namespace rw
