// The steps of the ResNet program: training and classification of images.
#pragma once

#include "../../data/images/loader.h"
#include "../../models/resnet.h"
#include "../../optim/accumulation/accumulate.h"
#include "../../trainer/task_steps.h"

namespace rw {

struct ResNetRecipe {
  ResNetConfig model;
  int64_t height = 32, width = 32;  // of the images, which have 3 channels
  float lr = 0.1f, weight_decay = 1e-4f;
  // Parts of a batch that run side by side, so that BatchNorm sees all of them.
  uint32_t parts = 1;
  bool joins_ranks = false;  // BatchNorm sees the batches of all ranks
  NumericsOptions numerics = {};
  AverageOptions average = {};
};

// Uploads the images in rows [first, first + rows) of a batch; without a batch, allocates memory
// for so many.
Tensor upload_images(const Batch& batch, int64_t first, int64_t rows, const ResNetRecipe& recipe,
                     DType dtype);

// The task of classifying images, as trainer/task_steps.h describes tasks.
class ResNetTask {
 public:
  using Recipe = ResNetRecipe;
  using Batch = rw::Batch;

  ResNetTask(const ResNetRecipe& recipe, const StepSettings& settings);

  std::unique_ptr<Optimizer> make_optimizer(const StepRanks& ranks) const;
  DataParallelOptions rank_options() const { return {.exact_batch_norm = recipe_.joins_ranks}; }
  Tensor loss_of(const Batch& batch, Meter& meter) {
    return loss_of(batch, 0, batch.size(), meter);
  }
  double weight_of(const Batch& batch) const { return static_cast<double>(batch.size()); }
  Batch batch_of(const BatchShape& shape) const { return {.rows = shape.rows_or(settings_.batch)}; }
  // Runs the parts of a batch side by side in training, and one after another in an evaluation.
  bool train_on(const Batch& batch, Optimizer& optimizer, Meter& meter);
  void evaluate_on(const Batch& batch, Meter& meter);

  ResNet model;

 private:
  uint32_t parts_of(const Batch& batch) const {
    return static_cast<uint32_t>(std::min<int64_t>(recipe_.parts, batch.size()));
  }
  // Returns the mean over rows [first, first + rows) of a batch.
  Tensor loss_of(const Batch& batch, int64_t first, int64_t rows, Meter& meter);
  // Returns the same of a part, and its rows.
  MicroBatch part_of(const Batch& batch, uint32_t part, Meter& meter);

  const ResNetRecipe recipe_;
  const StepSettings settings_;
};
using ResNetSteps = TaskSteps<ResNetTask>;

}  // namespace rw
