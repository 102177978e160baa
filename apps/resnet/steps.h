// The training step of the ResNet example.
#pragma once

#include "apps/common/meter.h"
#include "apps/common/training.h"
#include "rewind/data/loader.h"
#include "rewind/nn/models/resnet.h"
#include "rewind/optim/accumulate.h"

namespace rw {

struct ResNetRecipe {
  ResNetConfig model;
  int64_t height = 32, width = 32;  // of the images, which have 3 channels
  float lr = 0.1f, weight_decay = 1e-4f;
};

class ResNetSteps : public ModelSteps {
 public:
  ResNetSteps(const ResNetRecipe& recipe, const StepSettings& settings);

  void step(const Batch& batch) { step(batch, batch.size()); }
  // Counts into the meter; NoGrad and eval() are the caller's.
  void evaluate(const Batch& batch) { evaluate(batch, batch.size()); }

  void dry_step(const BatchShape& shape) override { step({}, shape.rows_or(settings_.batch)); }
  void dry_evaluation(const BatchShape& shape) override {
    model.eval();
    evaluate({}, shape.rows_or(settings_.batch));
  }
  void flush() override { finish_window(optimizer); }
  Module& trained() override { return model; }

  ResNet model;
  Accumulate optimizer;
  Meter meter;

 private:
  // The images and labels of a batch; of none, memory for so many.
  struct DeviceBatch {
    Tensor images, labels;
  };
  DeviceBatch upload(const Batch& batch, int64_t rows) const;
  void step(const Batch& batch, int64_t rows);
  void train_on(const DeviceBatch& batch);
  Tensor loss_of(const DeviceBatch& batch);
  void evaluate(const Batch& batch, int64_t rows);

  const ResNetRecipe recipe_;
  const StepSettings settings_;
};

}  // namespace rw
