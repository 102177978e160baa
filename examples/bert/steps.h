// The training steps of the BERT example: masked tokens, and sentences.
#pragma once

#include "data/text_loader.h"
#include "examples/common/meter.h"
#include "examples/common/training.h"
#include "nn/models/bert.h"
#include "optim/accumulate.h"

namespace rw {

struct BertRecipe {
  BertConfig config;
  int64_t length = 64;  // tokens per sequence
  int64_t classes = 0;  // of sentences; unused where tokens are predicted
  float lr = 1e-3f, weight_decay = 0.01f;
  MaskingOptions masking = {};

  // Most masked tokens of a sequence. Steps predict as many in every sequence, those that are not
  // there being ignored, so that all full batches need the same memory.
  int64_t predictions() const;
};

// Masked-language-model training.
class PretrainSteps : public TrainingSteps {
 public:
  PretrainSteps(const BertRecipe& recipe, const StepSettings& settings);

  void step(const TextBatch& batch);  // padded to recipe.length
  void dry_step() override;
  // Counts into the meter; NoGrad and eval() are the caller's.
  void evaluate(const TextBatch& batch);

  BertForPreTraining model;
  Accumulate optimizer;
  Meter meter;

 private:
  Tensor loss_of(const TextBatch& batch);

  const BertRecipe recipe_;
  const StepSettings settings_;
};

// Training of a classifier of sentences.
class FinetuneSteps : public TrainingSteps {
 public:
  FinetuneSteps(const BertRecipe& recipe, const StepSettings& settings);

  void step(const TextBatch& batch);
  void dry_step() override;
  void evaluate(const TextBatch& batch);

  BertForSequenceClassification model;
  Accumulate optimizer;
  Meter meter;

 private:
  Tensor loss_of(const TextBatch& batch);

  const BertRecipe recipe_;
  const StepSettings settings_;
};

}  // namespace rw
