// A training run of the speech program.
#pragma once

#include "corpus.h"

namespace rw {

// Trains a recogniser on the corpus, or with --eval only evaluates it.
void run_training(AsrOptions& options, const SpeechCorpus& corpus);

}  // namespace rw
