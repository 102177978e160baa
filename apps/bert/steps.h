// The steps of the BERT program: masked tokens, and sentences.
#pragma once

#include <memory>
#include <optional>

#include "../../data/text/text_loader.h"
#include "../../dist/step_ranks.h"
#include "../../models/bert.h"
#include "../../optim/accumulation/fused_backward.h"
#include "../common/average.h"
#include "../common/meter.h"
#include "../common/numerics.h"
#include "../common/training.h"

namespace rw {

// Whose moments take 8 bytes per parameter, and 2.
enum class BertOptimizer { adamw, adamw_8bit };

struct BertRecipe {
  BertConfig config;
  int64_t length = 64;  // tokens per sequence
  int64_t classes = 0;  // of sentences; unused where tokens are predicted
  float lr = 1e-3f, weight_decay = 0.01f;
  BertOptimizer optimizer = BertOptimizer::adamw;
  bool offload = false;                   // the moments lie in host memory
  std::optional<FusedPasses> fused = {};  // updates inside backward; needs one micro-batch
  MaskingOptions masking = {};
  NumericsOptions numerics = {};
  AverageOptions average = {};

  // Most masked tokens of a sequence. Steps predict as many in every sequence, those that are not
  // there being ignored, so that all full batches need the same memory.
  int64_t predictions() const;
};

// Masked-language-model training.
class PretrainSteps : public ModelSteps {
 public:
  PretrainSteps(const BertRecipe& recipe, const StepSettings& settings);

  void step(const TextBatch& batch);  // padded to recipe.length
  // Counts into the meter; NoGrad and eval() are the caller's.
  void evaluate(const TextBatch& batch);

  void dry_step(const BatchShape& shape) override { step(batch_of(shape)); }
  void dry_evaluation(const BatchShape& shape) override {
    dry_evaluate_both(model, parallel.get(), average.get(), [&] { evaluate(batch_of(shape)); });
  }
  DataParallel* updates_of_ranks() override { return parallel.get(); }
  void flush() override { finish_window(*optimizer); }
  Module& trained() override { return model; }

  StepRanks ranks;
  BertForPreTraining model;
  std::unique_ptr<Optimizer> optimizer;
  NumericsWatch numerics;
  std::unique_ptr<Ema> average;  // null: none is wanted
  Meter meter;
  std::unique_ptr<DataParallel> parallel;  // null: there is one rank

 private:
  Tensor loss_of(const TextBatch& batch);
  TextBatch batch_of(const BatchShape& shape) const;  // without tokens

  const BertRecipe recipe_;
  const StepSettings settings_;
};

// Training of a classifier of sentences.
class FinetuneSteps : public ModelSteps {
 public:
  FinetuneSteps(const BertRecipe& recipe, const StepSettings& settings);

  void step(const TextBatch& batch);
  void evaluate(const TextBatch& batch);

  void dry_step(const BatchShape& shape) override { step(batch_of(shape)); }
  void dry_evaluation(const BatchShape& shape) override {
    dry_evaluate_both(model, parallel.get(), average.get(), [&] { evaluate(batch_of(shape)); });
  }
  DataParallel* updates_of_ranks() override { return parallel.get(); }
  void flush() override { finish_window(*optimizer); }
  Module& trained() override { return model; }

  StepRanks ranks;
  BertForSequenceClassification model;
  std::unique_ptr<Optimizer> optimizer;
  NumericsWatch numerics;
  std::unique_ptr<Ema> average;  // null: none is wanted
  Meter meter;
  std::unique_ptr<DataParallel> parallel;  // null: there is one rank

 private:
  Tensor loss_of(const TextBatch& batch);
  TextBatch batch_of(const BatchShape& shape) const;  // without tokens

  const BertRecipe recipe_;
  const StepSettings settings_;
};

// The forward pass of a classifier; nothing is trained.
class ClassifySteps : public ModelSteps {
 public:
  ClassifySteps(const BertConfig& config, int64_t classes, const StepSettings& settings);

  std::vector<float> scores(const TextBatch& batch);  // [rows, classes]

  void dry_step(const BatchShape&) override;
  void dry_evaluation(const BatchShape& shape) override;
  Module& trained() override { return model; }

  BertForSequenceClassification model;

 private:
  const StepSettings settings_;
};

// The forward pass that fills masks; nothing is trained.
class FillMaskSteps : public ModelSteps {
 public:
  FillMaskSteps(const BertConfig& config, const StepSettings& settings);

  // Scores of the vocabulary for the tokens at `positions` of one text: [positions, vocabulary].
  std::vector<float> scores(const std::vector<int32_t>& ids, const std::vector<int32_t>& positions);

  void dry_step(const BatchShape&) override;
  void dry_evaluation(const BatchShape& shape) override;  // rows: positions
  Module& trained() override { return model; }

  BertForPreTraining model;

 private:
  std::vector<float> scores(const Tensor& ids, const Tensor& positions);

  const StepSettings settings_;
};

}  // namespace rw
