#include "apps/resnet/training.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/models/classifier.h"
#include "io/models/model.h"
#include "trainer/trainer.h"

namespace rw {

namespace {

Settings settings_of_run(const ResNetOptions& options, const Images& images) {
  if (options.eval) return {};
  Settings settings = run_settings(*options.command, options.rate(), {images.hash()});
  settings["parts"] = std::to_string(options.parts);
  return settings;
}

TrainingProgram program_of(const ResNetOptions& options, const Images& images) {
  TrainingProgram program = options.program(options.recipe(images.classes));
  const int64_t samples = images.train_size();
  program.settings.batch = std::min(program.settings.batch, samples);
  program.trains = !options.eval;
  // Training leaves out batches that are not full (drop_last).
  program.evaluation = own_batches_of(images.test_size());
  return program;
}

class ResNetTrainer : public Trainer<ResNetTask, ImageBatches> {
 public:
  ResNetTrainer(const ResNetOptions& options, const Images& images, PlannedRun& run);

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

}  // namespace

ResNetTrainer::ResNetTrainer(const ResNetOptions& options, const Images& images, PlannedRun& run)
    : Trainer(options, run, options.recipe(images.classes), images.training(options),
              settings_of_run(options, images)),
      options_(options),
      images_(images) {}

// Refuses weights for other classes before anything is trained.
void ResNetTrainer::load(ResNetSteps& steps) {
  if (options_.load.empty()) return;
  const SafetensorsFile stored(options_.load);
  check_class_names(stored, images_.class_names);
  load_tensors(stored, torch_state_dict(steps.model));
}

std::string ResNetTrainer::title() const {
  return fmt::format("{} ({} parameters)", options_.model, steps().model.parameter_count());
}

std::string ResNetTrainer::steps_text() const {
  return fmt::format("of {} {}", batch(), options_.data.empty() ? "synthetic images" : "images");
}

std::unique_ptr<ImageBatches> ResNetTrainer::testing(int64_t batch) {
  return images_.testing(static_cast<int>(batch));
}

std::string ResNetTrainer::result(const char* whose, const Meter::Values& values) const {
  return fmt::format("test accuracy {}{:.2f} % of {} images", whose, 100 * values.accuracy,
                     images_.readable_tests());
}

void ResNetTrainer::save(bool is_average) {
  if (options_.save.empty()) return;
  const auto& [mean, std] = images_.statistics;
  save_model(weights_path(options_.save, is_average), steps().model,
             to_metadata({.model = options_.model,
                          .image = options_.image,
                          .class_names = images_.class_names,
                          .mean = mean,
                          .std = std}));
}

void ResNetTrainer::add_figures(nlohmann::json& report) const {
  report.update({{"parameters", steps().model.parameter_count()},
                 {"classes", images_.class_names},
                 {"train_images", images_.train_size()},
                 {"test_images", images_.test_size()},
                 {"checkpoint", options_.checkpoint},
                 {"checkpoint_every", options_.checkpoint_every},
                 {"images_per_second", rate()}});
}

void run_training(ResNetOptions& options, const Images& images) {
  TrainingProgram program = program_of(options, images);
  options.fit_memory(program);
  run_planned(std::move(program), options.planning, [&](PlannedRun& run) {
    ResNetTrainer trainer(options, images, run);
    options.eval ? trainer.run_evaluation() : trainer.run();
  });
}

}  // namespace rw
