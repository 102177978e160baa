// The options of the ResNet example.
#pragma once

#include <string>

#include "apps/common/planning.h"
#include "apps/resnet/steps.h"

namespace rw {

struct ResNetOptions {
  DeviceOptions device;
  PlanningOptions planning;
  std::string model = "resnet20", data, checkpoint = StepSettings().checkpoint, report, save, load,
              resume;
  int batch = 0, epochs = 0, checkpoint_every = 1;  // 0: by the data
  int64_t steps = 0, snapshot_every = 100;
  int64_t image = 32;
  int classes = 10;  // with --plan
  uint32_t accumulate = 1;
  double lr = 0.1, weight_decay = 1e-4;
  uint64_t seed = 1;
  bool eval = false, restart = false, quiet = false;

  void add_to(CLI::App& app);
  void complete();  // checks, and fills in what depends on the data

  StepSettings settings() const;
  ResNetRecipe recipe(int classes) const;
  // Images of `height` x `width` pixels.
  TrainingProgram program(const ResNetRecipe& recipe) const;
};

}  // namespace rw
