// The steps of the BERT program, for masked tokens and for sentences.
#pragma once

#include <memory>

#include "../../data/text/text_loader.h"
#include "../../models/bert.h"
#include "../../trainer/adamw_options.h"
#include "../../trainer/task_steps.h"

namespace rw {

struct BertRecipe {
  BertConfig config;
  int64_t length = 64;  // tokens per sequence
  int64_t classes = 0;  // of sentences; unused if tokens are predicted
  AdamWRecipe update = {};
  MaskingOptions masking = {};
  NumericsOptions numerics = {};
  AverageOptions average = {};

  // Returns the most masked tokens of a sequence. Steps predict as many in every sequence and
  // ignore those that are not there, so that all full batches need the same memory.
  int64_t predictions() const;
};

// Returns the tokens of a batch, on the default device.
BertInput device_input(const TextBatch& batch);

// The task of masked-language-model training. Both tasks here are as trainer/task_steps.h describes
// them.
class PretrainTask {
 public:
  using Recipe = BertRecipe;
  using Batch = TextBatch;

  PretrainTask(const BertRecipe& recipe, const StepSettings& settings);

  std::unique_ptr<Optimizer> make_optimizer(const StepRanks& ranks) const;
  Tensor loss_of(const TextBatch& batch, Meter& meter);  // pads to recipe.length
  double weight_of(const TextBatch& batch) const { return static_cast<double>(batch.predictions); }
  TextBatch batch_of(const BatchShape& shape) const;  // has no tokens

  BertForPreTraining model;

 private:
  const BertRecipe recipe_;
  const StepSettings settings_;
};
using PretrainSteps = TaskSteps<PretrainTask>;

// The task of training a classifier of sentences.
class FinetuneTask {
 public:
  using Recipe = BertRecipe;
  using Batch = TextBatch;

  FinetuneTask(const BertRecipe& recipe, const StepSettings& settings);

  std::unique_ptr<Optimizer> make_optimizer(const StepRanks& ranks) const;
  Tensor loss_of(const TextBatch& batch, Meter& meter);
  double weight_of(const TextBatch& batch) const { return static_cast<double>(batch.rows); }
  TextBatch batch_of(const BatchShape& shape) const;  // has no tokens

  BertForSequenceClassification model;

 private:
  const BertRecipe recipe_;
  const StepSettings settings_;
};
using FinetuneSteps = TaskSteps<FinetuneTask>;

}  // namespace rw
