// The steps of the speech program: training, and recognition of sounds.
#pragma once

#include "../../data/speech/speech_loader.h"
#include "../../models/speech.h"
#include "../../trainer/task_steps.h"

namespace rw {

struct SpeechRecipe {
  SpeechConfig model;
  int64_t length = 400;  // frames of the longest batch
  int64_t width = 6;     // labels of the longest transcript
  float lr = 1e-2f, weight_decay = 0.01f;
  NumericsOptions numerics = {};
  AverageOptions average = {};
};

// The task of speech recognition, as trainer/task_steps.h describes tasks.
class SpeechTask {
 public:
  using Recipe = SpeechRecipe;
  using Batch = SpeechBatch;

  SpeechTask(const SpeechRecipe& recipe, const StepSettings& settings)
      : model(recipe.model), recipe_(recipe), settings_(settings) {}

  std::unique_ptr<Optimizer> make_optimizer(const StepRanks& ranks) const;
  Tensor loss_of(const SpeechBatch& batch, Meter& meter);
  double weight_of(const SpeechBatch& batch) const { return static_cast<double>(batch.rows); }
  SpeechBatch batch_of(const BatchShape& shape) const;  // has no sound
  void evaluate_on(const SpeechBatch& batch, Meter&) { recognise(batch); }

  // Computes the statistics of the features from these batches.
  void fit_features(SpeechLoader& loader, int64_t batches);
  // Returns the labels of each utterance. The caller sees to NoGrad, eval() and end_step().
  std::vector<std::vector<int32_t>> recognise(const SpeechBatch& batch, int beam = 1);

  SpeechRecognizer model;

 private:
  Tensor raw_features(const SpeechBatch& batch);  // f32
  Tensor features_of(const SpeechBatch& batch);

  const SpeechRecipe recipe_;
  const StepSettings settings_;
};
using SpeechSteps = TaskSteps<SpeechTask>;

}  // namespace rw
