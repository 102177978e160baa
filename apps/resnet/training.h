// A training run of the ResNet program.
#pragma once

#include "../../trainer/trainer.h"
#include "images.h"
#include "options.h"

namespace rw {

class ResNetTrainer : public Trainer<ResNetTask, ImageBatches> {
 public:
  ResNetTrainer(const ResNetOptions& options, const Images& images, ProgramRun& run);

  static TrainingProgram program(const ResNetOptions& options, const Images& images);

 protected:
  void load(ResNetSteps& steps) override;
  std::string title() const override;
  std::string steps_text() const override;
  std::unique_ptr<ImageBatches> testing(int64_t batch) override;
  std::string result(const char* whose, const Meter::Values& values) const override;
  void save(bool is_average) override;
  void add_figures(nlohmann::json& report) const override;

 private:
  const ResNetOptions& options_;
  const Images& images_;
};

}  // namespace rw
