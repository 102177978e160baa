// The model and the training step of the MNIST example.
#pragma once

#include "../../data/images/loader.h"
#include "../../nn/layers.h"
#include "../../trainer/task_steps.h"

namespace rw {

class Mlp : public Module {
 public:
  Mlp() {
    register_module("hidden1", hidden1_);
    register_module("hidden2", hidden2_);
    register_module("output", output_);
    register_module("dropout", dropout_);
  }
  // [N, 784] -> logits [N, 10].
  Tensor forward(Tensor x) override;

  // Two segments, each up to and with a dropout.
  void set_checkpoint(bool on) { checkpoint_ = on; }

 private:
  Linear hidden1_{784, 512}, hidden2_{512, 512}, output_{512, 10};
  Dropout dropout_{0.2f};
  bool checkpoint_ = false;
};

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
