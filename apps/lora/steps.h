// The steps of the program that fine-tunes language models by adapters.
#pragma once

#include <memory>
#include <string>

#include "../../data/chat/packed_examples.h"
#include "../../io/models/decoder_files.h"
#include "../../nn/adapters/frozen_weights.h"
#include "../../nn/adapters/lora.h"
#include "../../trainer/adamw_options.h"
#include "../../trainer/task_steps.h"

namespace rw {

struct LoraRecipe {
  DecoderConfig config;
  DecoderTypes types;                        // of the base's matrices
  std::shared_ptr<const DecoderFiles> base;  // null: for plans alone
  LoraOptions adapter;
  int64_t length = 512;  // tokens per row
  AdamWRecipe update = {};
  NumericsOptions numerics = {};
  AverageOptions average = {};
};

// The task (trainer/task_steps.h) of predicting the tokens of answers, by adapters of a model whose
// own weights stay.
class LoraTask {
 public:
  using Recipe = LoraRecipe;
  using Batch = InstructionBatch;

  LoraTask(const LoraRecipe& recipe, const StepSettings& settings);

  std::unique_ptr<Optimizer> make_optimizer(const StepRanks& ranks) const;
  // The mean over the tokens that count, whose number is the batch's weight: so the mean of an
  // update is that over the tokens of all its batches.
  Tensor loss_of(const InstructionBatch& batch, Meter& meter);
  double weight_of(const InstructionBatch& batch) const;
  InstructionBatch batch_of(const BatchShape& shape) const;  // has no tokens
  FileReads reads() const;

 private:
  const std::unique_ptr<Decoder> base_;
  std::unique_ptr<FrozenWeights> frozen_;  // null: they are on the device

 public:
  Decoder& model;

 private:
  const LoraRecipe recipe_;
  const StepSettings settings_;
};
using LoraSteps = TaskSteps<LoraTask>;

}  // namespace rw
