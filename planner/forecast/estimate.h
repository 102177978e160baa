// The usual estimate of training memory, beside the exact number.
#pragma once

#include <string>

#include "planner.h"

namespace rw {

// parameters x n + outputs x 2 + input, in f32: n is 2 for SGD and 4 for Adam (gradients and
// moments); outputs is what all ops of the forward pass return. All in bytes, `parameters` of one
// copy.
struct Estimate {
  double states = 2;  // n
  uint64_t parameters = 0, outputs = 0, input = 0;
  uint64_t saved = 0;  // outputs that gradients read
  MemoryReport exact;  // of the plain f32 step

  uint64_t total() const;  // the estimate
};
// Estimates a step of the planner's settings, but in f32, not accumulated, with nothing recomputed.
Estimate estimate(const Planner& planner);

// A few lines for people that compare the estimate with the exact number.
std::string estimate_text(const Estimate& estimate);

}  // namespace rw
