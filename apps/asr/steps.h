// The steps of the speech program: training, and what is said in sounds.
#pragma once

#include "../../data/speech/speech_loader.h"
#include "../../dist/step_ranks.h"
#include "../../models/speech.h"
#include "../../optim/accumulation/accumulate.h"
#include "../common/meter.h"
#include "../common/numerics.h"
#include "../common/training.h"

namespace rw {

struct SpeechRecipe {
  SpeechConfig model;
  int64_t length = 400;  // frames of the longest batch
  int64_t width = 6;     // labels of the longest transcript
  float lr = 1e-2f, weight_decay = 0.01f;
  NumericsOptions numerics = {};
};

class SpeechSteps : public ModelSteps {
 public:
  SpeechSteps(const SpeechRecipe& recipe, const StepSettings& settings);

  // Makes the features' statistics those of these batches.
  void fit_features(SpeechLoader& loader, int64_t batches);
  void step(const SpeechBatch& batch);
  // The labels of each utterance; NoGrad and eval() are the caller's.
  std::vector<std::vector<int32_t>> recognise(const SpeechBatch& batch, int beam = 1);

  void dry_step(const BatchShape& shape) override { step(batch_of(shape)); }
  void dry_evaluation(const BatchShape& shape) override {
    const WholeParameters whole(parallel.get());
    model.eval();
    recognise(batch_of(shape));
  }
  DataParallel* updates_of_ranks() override { return parallel.get(); }
  void flush() override { finish_window(optimizer); }
  Module& trained() override { return model; }

  StepRanks ranks;
  SpeechRecognizer model;
  Accumulate optimizer;
  NumericsWatch numerics;
  Meter meter;
  std::unique_ptr<DataParallel> parallel;  // null: there is one rank

 private:
  Tensor raw_features(const SpeechBatch& batch);  // f32
  Tensor features_of(const SpeechBatch& batch);
  Tensor loss_of(const SpeechBatch& batch);
  SpeechBatch batch_of(const BatchShape& shape) const;  // without sound

  const SpeechRecipe recipe_;
  const StepSettings settings_;
};

}  // namespace rw
