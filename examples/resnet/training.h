// A training run of the ResNet example.
#pragma once

#include "data/dataset.h"
#include "data/loader.h"
#include "examples/common/progress.h"
#include "examples/resnet/options.h"
#include "io/checkpoint.h"

namespace rw {

struct Images {
  ImageDataset train, test;
  ChannelStatistics statistics;

  // `folder`: with CIFAR-10's files; empty: images are drawn.
  explicit Images(const std::string& folder);
};

// The trained model, its optimizer and what the run measured.
class ResNetTraining {
 public:
  ResNetTraining(const ResNetOptions& options, const Images& images, PlannedRun& run);

  static PlannedProgram program(const ResNetOptions& options, const Images& images);

  void resume();  // from the newest checkpoint, if there is one
  void introduce() const;
  void run();
  void save() const;
  double evaluate();  // share of the test images that are classified correctly
  nlohmann::json report(double accuracy, const PlannedRun::Account& account) const;

 private:
  TrainingState state() { return {.model = steps_.model, .optimizer = steps_.optimizer}; }
  nlohmann::json settings() const;  // what must not change when training goes on
  void write_checkpoint(int64_t done);
  void note(int64_t step, const Meter::Values& values, Progress& progress);

  const ResNetOptions& options_;
  const Images& images_;
  PlannedRun& planned_;
  ResNetSteps steps_;
  Loader loader_;
  int64_t total_ = 0, start_ = 0;  // of this process's training, in steps
  double seconds_ = 0;
  nlohmann::json history_ = nlohmann::json::array();
};

}  // namespace rw
