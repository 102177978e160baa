// A training program as the planner sees it: what may be varied about its steps, one step and one
// batch of the evaluation without data, and what else it does with memory. Real runs and dry runs
// share all of it, so what is predicted is what happens.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "rewind/core/predict/recompute.h"
#include "rewind/core/tensor/tensor.h"
#include "rewind/nn/module.h"
#include "rewind/optim/accumulate.h"

namespace rw {

// How the steps of a program use memory.
struct StepSettings {
  DType dtype = DType::f16;
  int64_t batch = 1;                // samples per step
  uint32_t accumulate = 1;          // steps per update
  std::string checkpoint = "none";  // segments of the model: none, block or stage
  int checkpoint_every = 1;         // blocks or stages per segment
  std::shared_ptr<const Recompute> recompute = nullptr;  // instead of the model's segments
  uint64_t budget = 0;                                   // bytes that may be live, 0: any number
  int64_t evaluation_batch = 0;                          // samples at a time, 0: as in `batch`
};

// The sizes of a batch without data.
struct BatchShape {
  int64_t rows = 0;    // samples, 0: as many as the settings say
  int64_t length = 0;  // tokens per sample, where it has any; 0: as many as the program's longest
  int64_t rows_or(int64_t usual) const { return rows ? rows : usual; }
  bool operator==(const BatchShape&) const = default;
};

// What a program does besides steps of full batches, which takes memory too.
struct RunOutline {
  bool trains = true;                 // false: it only evaluates
  bool loads = false, saves = false;  // weights, from a file and to one
  // By the size of full batches: the sizes that batches of training have, beginning with the first
  // batch, and those of the evaluation. Not set: full ones.
  using Batches = std::function<std::vector<BatchShape>(int64_t batch)>;
  Batches steps = {}, evaluation = {};
};
// Of so many samples in order.
inline RunOutline::Batches batches_of(int64_t samples) {
  return [samples](int64_t batch) {
    std::vector<BatchShape> shapes;
    if (samples >= batch) shapes.push_back({.rows = batch});
    if (samples % batch) shapes.push_back({.rows = samples % batch});
    return shapes;
  };
}

// A model with its optimizer and meters. Its constructor and dry_step() allocate what training
// does.
class TrainingSteps {
 public:
  virtual ~TrainingSteps() = default;
  // One step of training and one batch of the evaluation, made from shapes alone, with end_step()
  // behind it. NoGrad and eval() are the caller's.
  virtual void dry_step(const BatchShape& shape = {}) = 0;
  virtual void dry_evaluation(const BatchShape& shape = {}) = 0;
  virtual void flush() {}  // finish_window(), where something is trained
  virtual Module& trained() = 0;
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

// The end of training: updates from a window that is not full, with end_step() behind it.
inline void finish_window(Accumulate& optimizer) {
  if (!optimizer.flush()) return;
  optimizer.zero_grad();
  default_device()->end_step();
}

// A program and the settings that its user asked for.
struct PlannedProgram {
  std::string title;    // "resnet20, 32x32 images, 10 classes"
  std::string samples;  // "images"
  MakeSteps make;
  StepSettings settings;
  RunOutline outline = {};
  double estimator_states = 2;  // floats per parameter in the usual estimate: SGD 2, Adam 4
  // Options of its command line.
  std::string block_option = "--checkpoint block";
  std::function<std::string(int64_t batch, uint32_t accumulate)> batch_option = [](auto b, auto a) {
    return fmt::format("--batch {} --accumulate {}", b, a);
  };
  // So many samples are evaluated at a time, or as many as take no more memory than all else does.
  int64_t most_evaluated = 0;  // 0: as in training
};

// A tensor of the values of a batch; of its shape alone in dry runs, where there are none.
inline Tensor batch_tensor(std::span<const float> values, const Shape& shape) {
  return values.empty() ? empty(shape, DType::f32) : tensor(values, shape);
}
inline Tensor batch_tensor(std::span<const int32_t> values, const Shape& shape) {
  return values.empty() ? empty(shape, DType::i32) : tensor(values, shape);
}

}  // namespace rw
