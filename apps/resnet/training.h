// A training run of the ResNet program.
#pragma once

#include "../common/training_loop.h"
#include "images.h"
#include "options.h"

namespace rw {

// The trained model, its optimizer and what the run measured.
class ResNetTraining {
 public:
  ResNetTraining(const ResNetOptions& options, const Images& images, ProgramRun& run);

  static TrainingProgram program(const ResNetOptions& options, const Images& images);

  void run();  // from the newest checkpoint on, if there is one
  void save() const;
  Evaluation evaluate();          // on the test images
  nlohmann::json report() const;  // of the training alone
  static void print(const Evaluation& evaluation, const Images& images);

 private:
  LoopOptions loop_options() const;
  Settings settings() const;
  int64_t batches_per_epoch() const;
  void introduce() const;

  const ResNetOptions& options_;
  const Images& images_;
  const int batch_;
  ResNetSteps steps_;
  const std::unique_ptr<ImageBatches> batches_;
  const int64_t total_;  // steps
  TrainingLoop loop_;
};

}  // namespace rw
