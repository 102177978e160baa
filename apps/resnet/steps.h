// The steps of the ResNet program: training, and what is in images.
#pragma once

#include "../../data/images/loader.h"
#include "../../dist/step_ranks.h"
#include "../../models/resnet.h"
#include "../../optim/accumulation/accumulate.h"
#include "../common/average.h"
#include "../common/meter.h"
#include "../common/numerics.h"
#include "../common/training.h"

namespace rw {

struct ResNetRecipe {
  ResNetConfig model;
  int64_t height = 32, width = 32;  // of the images, which have 3 channels
  float lr = 0.1f, weight_decay = 1e-4f;
  uint32_t parts = 1;        // of a batch, run side by side: BatchNorm sees all of them
  bool joins_ranks = false;  // BatchNorm sees the batches of all ranks
  NumericsOptions numerics = {};
  AverageOptions average = {};
};

class ResNetSteps : public ModelSteps {
 public:
  ResNetSteps(const ResNetRecipe& recipe, const StepSettings& settings);

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
  ResNet model;
  Accumulate optimizer;
  NumericsWatch numerics;
  std::unique_ptr<Ema> average;  // null: none is wanted
  Meter meter;
  std::unique_ptr<DataParallel> parallel;  // null: there is one rank

 private:
  struct DeviceBatch {
    Tensor images, labels;
  };
  void step(const Batch& batch, int64_t rows);
  // Rows [first, first + rows) of a batch.
  DeviceBatch upload(const Batch& batch, int64_t first, int64_t rows) const;
  void train_together(const Batch& batch, int64_t rows);
  void train_on(const DeviceBatch& batch);
  Tensor loss_of(const DeviceBatch& batch);
  void evaluate(const Batch& batch, int64_t rows);

  const ResNetRecipe recipe_;
  const StepSettings settings_;
};

// The forward pass alone; nothing is trained.
class PredictSteps : public ModelSteps {
 public:
  PredictSteps(const ResNetRecipe& recipe, const StepSettings& settings);

  std::vector<float> scores(const Batch& batch) { return scores(batch, batch.size()); }

  void dry_step(const BatchShape&) override;
  void dry_evaluation(const BatchShape& shape) override {
    model.eval();
    scores({}, shape.rows_or(settings_.batch));
  }
  Module& trained() override { return model; }

  ResNet model;

 private:
  std::vector<float> scores(const Batch& batch, int64_t rows);  // [rows, classes]

  const ResNetRecipe recipe_;
  const StepSettings settings_;
};

}  // namespace rw
