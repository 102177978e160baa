// What the memory benchmark trains: programs that build a model on the default device and take a
// few training steps, really or dry.
#pragma once

#include <functional>
#include <string>

#include "rewind/core/predict/recompute.h"
#include "rewind/core/predict/search.h"

namespace rw::memory {

// What decides about a figure, in the words of the report.
struct Case {
  std::string model;
  int64_t depth = 0;  // layers; ops for chains
  int64_t scale = 0;  // the number on the depth axis: k of depth 6k + 2, or the depth
  int64_t batch = 0;
  std::string input;  // of one sample: "32x32x3", "512 tokens"
  DType dtype = DType::f32;
  std::string norm;     // "BatchNorm on", "no normalisation"
  std::string in_peak;  // what is counted
};

// How the steps of a workload run.
struct Run {
  Recompute recompute = {};
  int segments_every = 0;           // > 0: the model's own segments, of so many blocks, instead
  int steps = 2;                    // the second one follows the plan that the first one taught
  RecordedGraph* record = nullptr;  // of the first forward pass
  TapeStats* tape = nullptr;        // of the last step, between forward and backward
  double* seconds = nullptr;        // of the last step
};

struct Workload {
  Case about;
  std::function<void(const Run&)> run;

  StepProgram program() const;  // for RecomputeSearch
};

// Runs the steps: `forward` gives the loss, `finish` takes it backward and updates.
void take_steps(const Run& run, const std::function<Tensor()>& forward,
                const std::function<void(const Tensor& loss)>& finish);

}  // namespace rw::memory
