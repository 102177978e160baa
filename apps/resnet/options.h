// The options of the ResNet program.
#pragma once

#include <string>
#include <vector>

#include "../common/learning_rate.h"
#include "../common/planning.h"
#include "../common/ranks.h"
#include "steps.h"

namespace rw {

struct ResNetOptions {
  CLI::App* command = nullptr;  // whose options these are
  DeviceOptions device;
  PlanningOptions planning;
  NumericsOptions numerics;
  AverageOptions average;
  RankOptions ranks;
  std::string model, norm = "batch", data, checkpoint = StepSettings().checkpoint, report, save,
                     load, resume;
  std::vector<std::string> predict;                 // photographs
  int batch = 0, epochs = 0, checkpoint_every = 1;  // 0: by the data
  int64_t steps = 0, snapshot_every = 100;
  int64_t image = 0;  // 0: by the data
  int classes = 0;    // with --plan; 0: by the data
  double test_share = 0.2;
  uint32_t accumulate = 1;
  bool exact_batch_norm = false, host_boundaries = false;
  uint32_t parts = 1;  // of a batch, with exact_batch_norm
  LearningRateOptions lr;
  double weight_decay = 1e-4;
  uint64_t seed = 1;
  bool eval = false, restart = false, quiet = false, skip_bad = false;

  void add_to(CLI::App& app);
  // Checks, and fills in what depends on the data or on the file of --load.
  void complete();
  bool has_photos() const { return has_photos_; }  // --data is a folder of photographs

  // Whether ranks normalise together: each has one of the batches that --exact-batch-norm joins.
  bool joins_ranks() const;

  StepSettings settings() const;
  ResNetRecipe recipe(int classes) const;
  // Images of `height` x `width` pixels.
  TrainingProgram program(const ResNetRecipe& recipe) const;

 private:
  void check_numbers() const;
  void take_from_file();

  bool has_photos_ = false;
};

}  // namespace rw
