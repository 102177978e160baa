// A training program as the planner sees it: what may be varied about its steps, and one step
// without data. Real runs and dry runs share the step, so what is predicted is what happens.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/recompute.h"
#include "core/tensor.h"

namespace rw {

// How the steps of a program use memory.
struct StepSettings {
  DType dtype = DType::f16;
  int64_t batch = 1;                // samples per step
  uint32_t accumulate = 1;          // steps per update
  std::string checkpoint = "none";  // segments of the model: none, block or stage
  int checkpoint_every = 1;         // blocks or stages per segment
  std::shared_ptr<const Recompute> recompute = nullptr;  // instead of the model's segments
  uint64_t budget = 0;  // bytes that may be live, 0: any number
};

// A model with its optimizer and meters. Its constructor and dry_step() allocate what training
// does.
class TrainingSteps {
 public:
  virtual ~TrainingSteps() = default;
  // One step of settings.batch samples, made from shapes alone, with end_step() behind it.
  virtual void dry_step() = 0;
  // The next forward pass fills `graph`.
  void record(RecordedGraph* graph) { record_ = graph; }

 protected:
  // To be alive around every forward pass; null where there is nothing to do.
  std::unique_ptr<RecomputeScope> forward_scope(const StepSettings& settings) {
    static const Recompute nothing;
    if (!grad_enabled()) return nullptr;
    RecordedGraph* graph = std::exchange(record_, nullptr);
    if (!settings.recompute && !graph) return nullptr;
    return std::make_unique<RecomputeScope>(settings.recompute ? *settings.recompute : nothing,
                                            graph);
  }

 private:
  RecordedGraph* record_ = nullptr;
};
using MakeSteps = std::function<std::unique_ptr<TrainingSteps>(const StepSettings&)>;

// A program and the settings that its user asked for.
struct PlannedProgram {
  std::string title;    // "resnet20, 32x32 images, 10 classes"
  std::string samples;  // "images"
  MakeSteps make;
  StepSettings settings;
  double estimator_states = 2;  // floats per parameter in the usual estimate: SGD 2, Adam 4
  // Options of its command line.
  std::string block_option = "--checkpoint block";
  std::function<std::string(int64_t batch, uint32_t accumulate)> batch_option = [](auto b, auto a) {
    return fmt::format("--batch {} --accumulate {}", b, a);
  };
};

// A tensor of the values of a batch; of its shape alone in dry runs, where there are none.
inline Tensor batch_tensor(std::span<const float> values, const Shape& shape) {
  return values.empty() ? empty(shape, DType::f32) : tensor(values, shape);
}
inline Tensor batch_tensor(std::span<const int32_t> values, const Shape& shape) {
  return values.empty() ? empty(shape, DType::i32) : tensor(values, shape);
}

}  // namespace rw
