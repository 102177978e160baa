// The steps of the program for language models.
#pragma once

#include <memory>

#include "../../data/text/token_windows.h"
#include "../../models/decoder.h"
#include "../../trainer/adamw_options.h"
#include "../../trainer/task_steps.h"

namespace rw {

struct LmRecipe {
  DecoderConfig config;
  bool is_loaded = false;  // files fill its parameters
  int64_t length = 128;    // tokens per window
  AdamWRecipe update = {};
  NumericsOptions numerics = {};
  AverageOptions average = {};
};

// The task (trainer/task_steps.h) of predicting the next token.
class LmTask {
 public:
  using Recipe = LmRecipe;
  using Batch = TokenBatch;

  LmTask(const LmRecipe& recipe, const StepSettings& settings);

  std::unique_ptr<Optimizer> make_optimizer(const StepRanks& ranks) const;
  Tensor loss_of(const TokenBatch& batch, Meter& meter);
  double weight_of(const TokenBatch& batch) const {
    return static_cast<double>(batch.rows * batch.length);
  }
  TokenBatch batch_of(const BatchShape& shape) const;  // has no tokens

  Decoder model;

 private:
  const LmRecipe recipe_;
  const StepSettings settings_;
};
using LmSteps = TaskSteps<LmTask>;

}  // namespace rw
