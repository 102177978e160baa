// What each way to save memory saved, measured by dry runs with one more of them at a time.
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
// From a step that frees nothing, in f32, on the whole batch at once, to the step of the settings:
// what a row saves is the row before it minus this one, so the savings add up exactly. Techniques
// that the settings do not use have no row.
std::vector<Saving> attribute_savings(const Planner& planner, const StepSettings& settings);
inline std::vector<Saving> attribute_savings(const Planner& planner) {
  return attribute_savings(planner, planner.settings());
}

// The rows as a table for people.
std::string savings_table(const std::vector<Saving>& savings);

}  // namespace rw
