// The training step of the MNIST program.
#pragma once

#include "../../data/images/loader.h"
#include "../../trainer/task_steps.h"
#include "../common/mnist_mlp.h"

namespace rw {

// The task of recognising digits, as trainer/task_steps.h describes tasks.
class MnistTask {
 public:
  struct Recipe {
    NumericsOptions numerics = {};
    AverageOptions average = {};
  };
  using Batch = rw::Batch;

  MnistTask(const Recipe& recipe, const StepSettings& settings);

  // Plain Adam equals Accumulate with one micro-batch bit for bit.
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
