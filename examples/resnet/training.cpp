#include "examples/resnet/training.h"

#include <fmt/format.h>

#include <cmath>

#include "core/ops.h"
#include "data/cifar.h"
#include "data/files.h"
#include "data/synthetic.h"
#include "io/model.h"

namespace rw {

Images::Images(const std::string& given) {
  // Drawn images: as many as two CPU cores train on in a minute or two.
  const std::filesystem::path folder =
      given.empty() ? synthetic_cifar10(cache_directory(), {.train = 4800, .test = 1000})
                    : std::filesystem::path(given);
  train = load_cifar10(folder, Split::train);
  test = load_cifar10(folder, Split::test);
  statistics = channel_statistics(train);
}

namespace {

ResNetRecipe recipe_for(const ResNetOptions& options, const ImageDataset& images) {
  ResNetRecipe recipe = options.recipe(images.classes);
  recipe.height = images.height;
  recipe.width = images.width;
  return recipe;
}

}  // namespace

PlannedProgram ResNetTraining::program(const ResNetOptions& options, const Images& images) {
  PlannedProgram program = options.program(recipe_for(options, images.train));
  program.settings.batch =
      std::min(program.settings.batch, static_cast<int64_t>(images.train.size()));
  return program;
}

ResNetTraining::ResNetTraining(const ResNetOptions& options, const Images& images, PlannedRun& run)
    : options_(options),
      images_(images),
      planned_(run),
      steps_(recipe_for(options, images.train), run.settings()),
      loader_(images.train, {.batch_size = options.batch,
                             .shuffle = true,
                             .drop_last = images.train.size() > static_cast<size_t>(options.batch),
                             .crop_padding = options.data.empty() ? 0 : 4,
                             .flip = true,
                             .mean = images.statistics.mean,
                             .std = images.statistics.std,
                             .seed = options.seed}) {
  total_ = options.steps ? options.steps : options.epochs * loader_.batches();
  const auto updates =
      static_cast<uint32_t>((total_ + options.accumulate - 1) / options.accumulate);
  steps_.optimizer.set_schedule(Schedule::cosine(updates, updates / 10));
  if (!options.load.empty()) load_model(options.load, steps_.model);
}

nlohmann::json ResNetTraining::settings() const {
  return {{"model", options_.model},
          {"data", options_.data.empty() ? "drawn shapes" : options_.data},
          {"dtype", name(options_.device.parsed_dtype())},
          {"batch", options_.batch},
          {"accumulate", options_.accumulate},
          {"lr", options_.lr},
          {"weight_decay", options_.weight_decay},
          {"seed", options_.seed},
          {"steps", total_}};
}

void ResNetTraining::resume() {
  if (options_.resume.empty()) return;
  const auto position = CheckpointDirectory(options_.resume).load_latest(state());
  if (!position) return;
  const auto saved = nlohmann::json::parse(position->json);
  check(saved.at("settings") == settings(), "resume", "'{}' is of another run: {}, not {}",
        options_.resume, saved.at("settings").dump(), settings().dump());
  start_ = position->step;
  history_ = saved.at("history");
  if (!options_.quiet) fmt::print("going on after step {} of '{}'\n", start_, options_.resume);
}

void ResNetTraining::write_checkpoint(int64_t done) {
  const nlohmann::json saved = {{"settings", settings()}, {"history", history_}};
  CheckpointDirectory(options_.resume)
      .save(state(), {.step = done,
                      .epoch = done / loader_.batches(),
                      .index = done % loader_.batches(),
                      .json = saved.dump()});
}

void ResNetTraining::introduce() const {
  if (options_.quiet) return;
  fmt::print("{} ({} parameters) in {} on {}: {} steps of {} {}\n", options_.model,
             steps_.model.parameter_count(), options_.device.dtype, default_device()->info().name,
             total_, options_.batch, options_.data.empty() ? "drawn images" : "images");
}

void ResNetTraining::run() {
  steps_.model.train();
  Progress progress(total_, options_.quiet);
  const int64_t batches = loader_.batches();
  int64_t saved = start_;
  for (int64_t i = start_; i < total_; ++i) {
    planned_.before_step(i, total_);
    steps_.step(loader_.batch(i / batches, i % batches));
    if (progress.due(i + 1)) note(i + 1, steps_.meter.read(), progress);
    // Between updates only: the gradients of a window are not part of a checkpoint.
    if (!options_.resume.empty() && i + 1 - saved >= options_.checkpoint_every_steps &&
        steps_.optimizer.position() == 0) {
      write_checkpoint(i + 1);
      saved = i + 1;
    }
  }
  steps_.optimizer.flush();
  seconds_ = progress.seconds();
}

void ResNetTraining::note(int64_t step, const Meter::Values& values, Progress& progress) {
  check<NumericsError>(
      std::isfinite(values.loss), "train",
      "the loss must be finite, got {} at step {}; lower --lr or use --dtype f32 ({})", values.loss,
      step, steps_.optimizer.diagnose());
  const double rate = static_cast<double>((step - start_) * options_.batch) / progress.seconds();
  const uint64_t memory = default_device()->memory_report().peak;
  progress.show(step, fmt::format("loss {:.3f}  accuracy {:.1f} %  {:.0f} images/s  {}",
                                  values.loss, 100 * values.accuracy, rate, format_bytes(memory)));
  history_.push_back({{"step", step},
                      {"loss", values.loss},
                      {"accuracy", values.accuracy},
                      {"seconds", progress.seconds()}});
}

void ResNetTraining::save() const {
  if (!options_.save.empty()) save_model(options_.save, steps_.model, {{"model", options_.model}});
}

double ResNetTraining::evaluate() {
  const NoGrad guard;
  steps_.model.eval();
  steps_.meter.clear();
  Loader loader(images_.test, {.batch_size = options_.batch,
                               .mean = images_.statistics.mean,
                               .std = images_.statistics.std});
  for (int64_t i = 0; i < loader.batches(); ++i) steps_.evaluate(loader.batch(0, i));
  return steps_.meter.read().accuracy;
}

nlohmann::json ResNetTraining::report(double accuracy, const PlannedRun::Account& account) const {
  nlohmann::json report = settings();
  report.update(
      {{"parameters", steps_.model.parameter_count()},
       {"train_images", images_.train.size()},
       {"test_images", images_.test.size()},
       {"checkpoint", options_.checkpoint},
       {"checkpoint_every", options_.checkpoint_every},
       {"updates", steps_.optimizer.updates()},
       {"skipped_updates", steps_.optimizer.skipped()},
       {"loss_scale", steps_.optimizer.loss_scale()},
       {"train_seconds", seconds_},
       {"images_per_second", static_cast<double>((total_ - start_) * options_.batch) / seconds_},
       {"test_accuracy", accuracy},
       {"history", history_},
       {"device", account.json()}});
  return report;
}

}  // namespace rw
