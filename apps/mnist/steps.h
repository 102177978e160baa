// The training step of the MNIST program.
#pragma once

#include "../../data/images/loader.h"
#include "../../trainer/task_steps.h"
#include "../common/mnist_mlp.h"

namespace rw {

// Digits. As trainer/task_steps.h has tasks.
class MnistTask {
 public:
  struct Recipe {
    NumericsOptions numerics = {};
    AverageOptions average = {};
  };
  using Batch = rw::Batch;

  MnistTask(const Recipe& recipe, const StepSettings& settings);

  // Plain Adam is Accumulate with one micro-batch, to the bit.
  std::unique_ptr<Optimizer> make_optimizer(const StepRanks& ranks) const;
  Tensor loss_of(const Batch& batch, Meter& meter);
  double weight_of(const Batch& batch) const { return static_cast<double>(batch.size()); }
  Batch batch_of(const BatchShape& shape) const { return {.rows = shape.rows_or(settings_.batch)}; }
  void evaluate_on(const Batch& batch, Meter& meter);

  Mlp model;

 private:
  const StepSettings settings_;
};
using MnistSteps = TaskSteps<MnistTask>;

}  // namespace rw
