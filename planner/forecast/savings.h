// The bytes that each technique saves, measured by dry runs with one more of them at a time.
#pragma once

#include <string>
#include <vector>

#include "planner.h"

namespace rw {

// A row of attribute_savings().
struct Saving {
  std::string technique;  // that this row adds; of the first row: none
  uint64_t peak = 0;      // bytes, with it and those before it
};
// The rows lead from a step that frees nothing, in f32, on the whole batch at once, to the step of
// the settings: a row saves what the previous row takes minus what it takes itself, so the savings
// add up exactly. Techniques that the settings do not use have no row.
std::vector<Saving> attribute_savings(const Planner& planner, const StepSettings& settings);
inline std::vector<Saving> attribute_savings(const Planner& planner) {
  return attribute_savings(planner, planner.settings());
}

// Returns the name of such a plan for people, with the bytes that it keeps in 8 bits.
std::string plan_text(const Plan& plan);

// The rows as a table for people.
std::string savings_table(const std::vector<Saving>& savings);

}  // namespace rw
