// The options of the speech program.
#pragma once

#include <string>
#include <vector>

#include "../common/learning_rate.h"
#include "../common/numerics.h"
#include "../common/planning.h"
#include "../common/ranks.h"
#include "steps.h"

namespace rw {

struct AsrOptions {
  CLI::App* command = nullptr;  // whose options these are
  DeviceOptions device;
  PlanningOptions planning;
  NumericsOptions numerics;
  RankOptions ranks;
  std::string data, loss = "ctc", tokens, checkpoint = StepSettings().checkpoint, report, load,
                    save, resume;
  int64_t strings = 2000, batch = 8, epochs = 0, steps = 0, snapshot_every = 100;
  int64_t hidden = 128, layers = 1, channels = 96;
  LearningRateOptions lr{.lr = 1e-2};
  double test_share = 0.1, weight_decay = 0.01, seconds = 4;
  int beam = 1, classes = 0;
  uint32_t accumulate = 1;
  uint64_t seed = 1;
  bool eval = false, restart = false, quiet = false;

  void add_to(CLI::App& app);
  // Checks, and fills in what depends on the data.
  void complete();

  SpeechConfig model(int64_t classes) const;
  SpeechRecipe recipe(int64_t classes, int64_t length, int64_t width) const;
  TrainingProgram program(const SpeechRecipe& recipe) const;
  // Of utterances for that model.
  SpeechLoaderOptions loader(const SpeechConfig& model, int64_t batch, bool shuffle) const;
};

std::string default_recognizer();  // a file in the cache

}  // namespace rw
