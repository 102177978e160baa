#include "apps/resnet/prediction.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/resnet/photos.h"
#include "io/models/classifier.h"
#include "io/models/model.h"
#include "ops/autocast.h"
#include "trainer/program/ranking.h"

namespace rw {

namespace {

constexpr size_t shown_classes = 5;

// The forward pass alone, without training.
class PredictSteps : public ModelSteps {
 public:
  PredictSteps(const ResNetRecipe& recipe, const StepSettings& settings)
      : model(recipe.model), recipe_(recipe), settings_(settings) {}

  std::vector<float> scores(const Batch& batch) {  // [size, classes]
    std::vector<float> scores;
    {
      const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
      scores = model(upload_images(batch, 0, batch.size(), recipe_, settings_.dtype)).to_vector();
    }
    default_device()->end_step();
    return scores;
  }

  void dry_evaluation(const BatchShape& shape) override {
    model.eval();
    scores({.rows = shape.rows_or(settings_.batch)});
  }
  Module& trained() override { return model; }

  ResNet model;

 private:
  const ResNetRecipe recipe_;
  const StepSettings settings_;
};

// A classifier as its file describes it.
struct StoredClassifier {
  explicit StoredClassifier(const std::string& path)
      : file(path), about(read_image_classifier(file)) {
    const auto last = file.tensors().find("fc.weight");
    check<FileError>(last != file.tensors().end() && last->second.shape.rank() == 2 &&
                         last->second.shape[0] > 0 && last->second.shape[0] < (1 << 24),
                     "predict", "'{}' must hold a ResNet, an fc.weight; resnet --save makes one",
                     path);
    classes = static_cast<int>(last->second.shape[0]);
    const size_t named = about.class_names.size();
    check<FileError>(named == 0 || named == static_cast<size_t>(classes), "predict",
                     "'{}' must have a name for each of its {} classes, got {}", path, classes,
                     named);
    if (about.mean.empty()) std::tie(about.mean, about.std) = imagenet();
    check<FileError>(about.mean.size() == 3, "predict",
                     "'{}' must be of images of 3 channels, got {}", path, about.mean.size());
  }
  std::string name_of(size_t i) const {
    return about.class_names.empty() ? fmt::format("class {}", i) : about.class_names[i];
  }

  SafetensorsFile file;
  ImageClassifier about;
  int classes = 0;

 private:
  static std::pair<std::vector<float>, std::vector<float>> imagenet() {
    ChannelStatistics usual = imagenet_statistics();
    return {usual.mean, usual.std};
  }
};

nlohmann::json print_photo(const std::string& photo, std::span<const float> scores,
                           const StoredClassifier& stored) {
  fmt::print("{}\n", photo);
  nlohmann::json classes = nlohmann::json::array();
  for (const auto& [index, probability] : best_of(scores, shown_classes, "predict")) {
    fmt::print("{:5.1f} %  {}\n", 100 * probability, stored.name_of(index));
    classes.push_back({{"class", stored.name_of(index)}, {"probability", probability}});
  }
  return {{"file", photo}, {"classes", classes}};
}

TrainingProgram prediction_of(const ResNetOptions& options, const ResNetRecipe& recipe,
                              int64_t photos) {
  TrainingProgram program = options.program(recipe);
  program.make = [recipe](const StepSettings& s) {
    return std::make_unique<PredictSteps>(recipe, s);
  };
  program.settings.batch = std::min(program.settings.batch, photos);
  program.trains = program.saves = false;
  program.loads = true;
  program.evaluation = batches_of(photos);
  return program;
}

}  // namespace

void predict(const ResNetOptions& options) {
  const StoredClassifier stored(options.load);
  PhotoDataset photos{.files = {options.predict.begin(), options.predict.end()},
                      .labels = std::vector<int32_t>(options.predict.size()),
                      .class_names = {"unknown"}};
  const auto bad = options.strict ? BadPhotos::are_refused : BadPhotos::are_skipped;
  look_through(photos, {.bad = bad, .decodes = true}, options.quiet);
  options.device.open();
  const ResNetRecipe recipe = options.recipe(stored.classes);
  const TrainingProgram program =
      prediction_of(options, recipe, static_cast<int64_t>(photos.size()));
  run_planned(program, options.planning, [&](PlannedRun& run) {
    const NoGrad guard;
    PredictSteps steps(recipe, run.settings());
    load_tensors(stored.file, torch_state_dict(steps.model));
    steps.model.eval();
    PhotoLoader loader(photos, {.batch_size = run.settings().batch,
                                .image = static_cast<int>(options.image),
                                .statistics = {stored.about.mean, stored.about.std}});
    nlohmann::json report = nlohmann::json::array();
    for (int64_t b = 0; b < loader.batches(); ++b) {
      const std::vector<float> scores = steps.scores(loader.batch(0, b));
      const auto classes = static_cast<size_t>(stored.classes);
      for (size_t at = 0; at < scores.size(); at += classes) {
        if (!report.empty()) fmt::print("\n");
        report.push_back(print_photo(photos.files[report.size()].string(),
                                     std::span(scores).subspan(at, classes), stored));
      }
    }
    ReportFile(options.planning.report).write({{"photographs", report}});
  });
}

}  // namespace rw
