// The data to train the recogniser on: LibriSpeech's folders, or digits that espeak-ng speaks.
#pragma once

#include <optional>

#include "../../data/speech/speech_loader.h"
#include "../../io/models/speech.h"
#include "options.h"

namespace rw {

class SpeechCorpus {
 public:
  // Fills in the options that the file of --load decides.
  explicit SpeechCorpus(AsrOptions& options);

  int64_t batch() const;  // --batch, or as many as there are utterances
  SpeechLoader training(int64_t batch) const;
  SpeechLoader testing(int64_t batch) const;
  SpeechRecipe recipe() const;
  int64_t steps_of(const SpeechLoader& loader) const;  // of the whole training
  TrainingProgram program() const;                     // refers to this corpus

  SpeechDataset train, test;
  std::optional<SpeechUnits> units;

 private:
  const AsrOptions& options_;
};

}  // namespace rw
