// The options of the speech program.
#pragma once

#include <string>
#include <vector>

#include "../../trainer/trainer_options.h"
#include "steps.h"

namespace rw {

struct AsrOptions : TrainerOptions {
  AsrOptions()
      : TrainerOptions{.batch = 8,
                       .epochs = 0,
                       .samples = "utterances",
                       .segments = {"block"},
                       .has_accuracy = false} {}

  std::string data, loss = "ctc", tokens, load, save;
  int64_t strings = 2000;
  int64_t hidden = 128, layers = 1, channels = 96;
  double test_share = 0.1, seconds = 4;
  int beam = 1;
  bool eval = false;

  void add_to(CLI::App& app);
  // Checks the options, and fills in those that depend on the data.
  void complete();

  SpeechConfig model(int64_t classes) const;
  SpeechRecipe recipe(int64_t classes, int64_t length, int64_t width) const;
  TrainingProgram program(const SpeechRecipe& recipe) const;
  // Returns the options of a loader of utterances for that model.
  SpeechLoaderOptions loader(const SpeechConfig& model, int64_t batch, bool shuffle) const;
};

std::string default_recognizer();  // a file in the cache

}  // namespace rw
