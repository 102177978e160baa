// The workloads of the memory benchmark: programs that build a model on the default device and take
// training steps, real or dry, with all properties that decide about a figure.
#pragma once

#include <string>

#include "../../planner/forecast/program.h"

namespace rw::memory {

// The properties that decide about a figure, in the words of the report.
struct Case {
  std::string model;
  int64_t depth = 0;  // layers; ops for chains
  int64_t scale = 0;  // the number on the depth axis: k of depth 6k + 2, or the depth
  int64_t batch = 0;
  std::string input;  // of one sample: "32x32x3", "512 tokens"
  DType dtype = DType::f32;
  std::string norm;     // "BatchNorm on", "no normalisation"
  std::string in_peak;  // the things that are counted
};

struct Workload {
  Case about;
  // It obeys the settings `checkpoint` (none, block) and `checkpoint_every`; `about` says what is
  // trained. Real and dry runs take the same steps, because the data is zeros.
  MakeSteps make;

  // Two steps: the second one follows the plan that the first one taught. `tape`: the second one's
  // between forward and backward; `seconds`: of the quickest step behind the first, where there are
  // several: those of less than a second are repeated; null: not wanted.
  void run(const StepSettings& settings = {}, TapeStats* tape = nullptr,
           double* seconds = nullptr) const;
};

}  // namespace rw::memory
