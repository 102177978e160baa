// A training run of the speech program.
#pragma once

#include "../../nn/speech/ctc_decode.h"
#include "../../trainer/trainer.h"
#include "corpus.h"

namespace rw {

class AsrTrainer : public Trainer<SpeechTask, SpeechLoader> {
 public:
  AsrTrainer(const AsrOptions& options, const SpeechCorpus& corpus, ProgramRun& run);

 protected:
  void load(SpeechSteps& steps) override;
  std::string title() const override;
  std::string steps_text() const override;
  std::unique_ptr<SpeechLoader> testing(int64_t batch) override;
  void save(bool is_average) override;
  void add_figures(nlohmann::json& report) const override;
  nlohmann::json evaluate(bool quiet) override;  // evaluates on the speakers held out

 private:
  WordErrors errors();  // with the weights as they are

  const AsrOptions& options_;
  const SpeechCorpus& corpus_;
};

}  // namespace rw
