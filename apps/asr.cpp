// Trains a streaming speech recogniser on LibriSpeech's folders, or on digits that espeak-ng
// speaks, in f16 on Vulkan, and shows where the memory went. `recognise` prints the words in sound
// files.
#include <CLI/CLI.hpp>

#include "apps/asr/recognise.h"
#include "apps/asr/training.h"
#include "core/base/rng.h"

using namespace rw;

namespace {

// The program for digits of the usual sizes, where none are to be spoken.
TrainingProgram usual_program(const AsrOptions& options) {
  constexpr int64_t classes = 11, longest = 6;
  const LogMelOptions features;
  const auto frames =
      static_cast<int64_t>(options.seconds * static_cast<double>(features.rate)) / features.hop;
  return options.program(options.recipe(classes, frames, longest));
}

void run(AsrOptions& options) {
  options.complete();
  if (options.planning.plan && options.data.empty())
    return run_plan(usual_program(options), options.planning, options.device);
  if (!options.planning.plan) options.device.open();
  manual_seed(options.seed);
  const SpeechCorpus corpus(options);
  if (options.planning.plan) return run_plan(corpus.program(), options.planning, options.device);
  run_training(options, corpus);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Trains a streaming speech recogniser on speech, or on digits that are synthesised.");
  AsrOptions options;
  options.add_to(app);
  CLI::App& ask = *app.add_subcommand("recognise", "print the words in sound files");
  const auto recognise = add_recognise(ask);
  return run_program(app, argc, argv, [&] { ask ? recognise() : run(options); });
}
