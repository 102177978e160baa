// A training run of the speech program.
#pragma once

#include "../../nn/speech/ctc_decode.h"
#include "../common/training_loop.h"
#include "corpus.h"

namespace rw {

// The trained model, its optimizer and what the run measured.
class AsrTraining {
 public:
  AsrTraining(const AsrOptions& options, const SpeechCorpus& corpus, ProgramRun& run);

  void run();  // from the newest snapshot on, if there is one
  void save() const;
  WordErrors evaluate();          // on the speakers held out
  nlohmann::json report() const;  // of the training alone

 private:
  LoopOptions loop_options() const;
  Settings settings() const;
  void introduce() const;

  const AsrOptions& options_;
  const SpeechCorpus& corpus_;
  const int64_t batch_;
  SpeechSteps steps_;
  SpeechLoader loader_;
  const int64_t total_;  // steps
  TrainingLoop loop_;
};

}  // namespace rw
