// The model and the training step of the MNIST example.
#pragma once

#include "../../data/images/loader.h"
#include "../../dist/step_ranks.h"
#include "../../nn/layers.h"
#include "../../optim/accumulation/accumulate.h"
#include "../common/average.h"
#include "../common/meter.h"
#include "../common/numerics.h"
#include "../common/training.h"

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

class MnistSteps : public ModelSteps {
 public:
  explicit MnistSteps(const StepSettings& settings, const NumericsOptions& numerics = {},
                      const AverageOptions& average = {});

  void step(const Batch& batch) { step(batch, batch.size()); }
  // Counts into the meter; NoGrad and eval() are the caller's.
  void evaluate(const Batch& batch) { evaluate(batch, batch.size()); }

  void dry_step(const BatchShape& shape) override { step({}, shape.rows_or(settings_.batch)); }
  void dry_evaluation(const BatchShape& shape) override {
    dry_evaluate_both(model, parallel.get(), average.get(),
                      [&] { evaluate({}, shape.rows_or(settings_.batch)); });
  }
  DataParallel* updates_of_ranks() override { return parallel.get(); }
  void flush() override { finish_window(optimizer); }
  Module& trained() override { return model; }

  StepRanks ranks;
  Mlp model;
  // Plain Adam is this with one micro-batch, to the bit.
  Accumulate optimizer;
  NumericsWatch numerics;
  std::unique_ptr<Ema> average;  // null: none is wanted
  Meter meter;
  std::unique_ptr<DataParallel> parallel;  // null: there is one rank

 private:
  void step(const Batch& batch, int64_t rows);
  Tensor train_loss(const Batch& batch, int64_t rows);
  void evaluate(const Batch& batch, int64_t rows);
  void measure(const Batch& batch, int64_t rows);

  const StepSettings settings_;
};

}  // namespace rw
