#include "apps/resnet/training.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "data/base/prefetch.h"
#include "io/models/classifier.h"
#include "io/models/model.h"

namespace rw {

namespace {

// Weights of other classes are refused before anything is trained.
void load_weights(const std::string& file, const Images& images, ResNet& model) {
  const SafetensorsFile stored(file);
  check_class_names(stored, images.class_names);
  load_tensors(stored, torch_state_dict(model));
}

}  // namespace

TrainingProgram ResNetTraining::program(const ResNetOptions& options, const Images& images) {
  TrainingProgram program = options.program(options.recipe(images.classes));
  const int64_t samples = images.train_size();
  program.settings.batch = std::min(program.settings.batch, samples);
  program.outline.trains = !options.eval;
  // Batches that are not full are left out of training (drop_last).
  program.outline.evaluation = own_batches_of(images.test_size());
  return program;
}

ResNetTraining::ResNetTraining(const ResNetOptions& options, const Images& images, ProgramRun& run)
    : options_(options),
      images_(images),
      batch_(static_cast<int>(run.settings().batch)),
      steps_(options.recipe(images.classes), run.settings()),
      batches_(images.training(options)),
      total_(options.steps ? options.steps : options.epochs * batches_per_epoch()),
      loop_(loop_options(), steps_.model, steps_.optimizer, steps_.meter, run, &steps_.numerics,
            steps_.average.get()) {
  const auto updates =
      static_cast<uint32_t>((total_ + options.accumulate - 1) / options.accumulate);
  steps_.optimizer.set_schedule(Schedule::cosine(updates, updates / 10));
  if (options.load.empty()) return;
  const WholeParameters whole(steps_.parallel.get());
  load_weights(options.load, images, steps_.model);
}

// Ranks that normalise together all have a batch at a time.
int64_t ResNetTraining::batches_per_epoch() const {
  const int64_t all = batches_->batches();
  return options_.joins_ranks() ? all / rank_count() * rank_count() : all;
}

LoopOptions ResNetTraining::loop_options() const {
  return {.steps = total_,
          .batches = batches_per_epoch(),
          .samples = options_.batch,
          .unit = "images",
          .quiet = options_.quiet,
          .snapshots = options_.resume,
          .steps_per_snapshot = options_.snapshot_every,
          .parallel = steps_.parallel.get(),
          .restart = options_.restart,
          .settings = options_.eval ? Settings() : settings()};
}

Settings ResNetTraining::settings() const {
  const double rate = options_.lr.rate(options_.batch, options_.accumulate);
  Settings settings = run_settings(*options_.command, rate, {images_.hash()});
  settings["parts"] = std::to_string(options_.parts);
  return settings;
}

void ResNetTraining::introduce() const {
  if (options_.quiet) return;
  fmt::print("{} ({} parameters) in {} on {}{}: {} steps of {} {}{}\n", options_.model,
             steps_.model.parameter_count(), options_.device.dtype, default_device()->info().name,
             of_ranks(), total_, options_.batch, options_.data.empty() ? "drawn images" : "images",
             options_.lr.str(options_.batch, options_.accumulate));
}

void ResNetTraining::run() {
  loop_.resume();
  introduce();
  RankStream<ImageBatches> stream(*batches_, loop_.start(), batches_per_epoch());
  loop_.run([&](int64_t) { steps_.step(stream.next()); },
            [this] {
              const Evaluation found = evaluate();
              if (!options_.quiet) print(found, images_);
              return found.json("test_");
            });
}

void ResNetTraining::print(const Evaluation& evaluation, const Images& images) {
  evaluation.print([&](const char* whose, const Meter::Values& values) {
    fmt::print("test accuracy {}{:.2f} % of {} images\n", whose, 100 * values.accuracy,
               images.test_size());
  });
}

void ResNetTraining::save() const {
  if (options_.save.empty()) return;
  const WholeParameters whole(steps_.parallel.get());
  if (!is_first_rank()) return;
  const auto& [mean, std] = images_.statistics;
  const Metadata about = to_metadata({.model = options_.model,
                                      .image = options_.image,
                                      .class_names = images_.class_names,
                                      .mean = mean,
                                      .std = std});
  save_model(options_.save, steps_.model, about);
  if (steps_.average)
    at_average(*steps_.average,
               [&] { save_model(average_path(options_.save), steps_.model, about); });
  default_device()->end_step();
}

Evaluation ResNetTraining::evaluate() {
  const std::unique_ptr<ImageBatches> testing = images_.testing(batch_);
  return evaluate_both(steps_, [&]() -> ImageBatches& { return *testing; });
}

nlohmann::json ResNetTraining::report() const {
  nlohmann::json report = loop_.json();
  report.update({{"parameters", steps_.model.parameter_count()},
                 {"classes", images_.class_names},
                 {"train_images", images_.train_size()},
                 {"test_images", images_.test_size()},
                 {"checkpoint", options_.checkpoint},
                 {"checkpoint_every", options_.checkpoint_every},
                 {"images_per_second", loop_.rate()},
                 {"device", device_json()}});
  return report;
}

}  // namespace rw
