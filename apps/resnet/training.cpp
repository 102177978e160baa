#include "apps/resnet/training.h"

#include <fmt/format.h>

#include "rewind/data/cifar.h"
#include "rewind/data/files.h"
#include "rewind/data/synthetic.h"
#include "rewind/io/model.h"

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

TrainingProgram ResNetTraining::program(const ResNetOptions& options, const Images& images) {
  TrainingProgram program = options.program(recipe_for(options, images.train));
  const auto samples = static_cast<int64_t>(images.train.size());
  program.settings.batch = std::min(program.settings.batch, samples);
  program.outline.trains = !options.eval;
  // Batches that are not full are left out of training (drop_last).
  program.outline.evaluation = batches_of(static_cast<int64_t>(images.test.size()));
  return program;
}

ResNetTraining::ResNetTraining(const ResNetOptions& options, const Images& images, ProgramRun& run)
    : options_(options),
      images_(images),
      batch_(static_cast<int>(run.settings().batch)),
      steps_(recipe_for(options, images.train), run.settings()),
      loader_(images.train, {.batch_size = options.batch,
                             .shuffle = true,
                             .drop_last = images.train.size() > static_cast<size_t>(options.batch),
                             .crop_padding = options.data.empty() ? 0 : 4,
                             .flip = true,
                             .mean = images.statistics.mean,
                             .std = images.statistics.std,
                             .seed = options.seed}),
      total_(options.steps ? options.steps : options.epochs * loader_.batches()),
      loop_(loop_options(), steps_.model, steps_.optimizer, steps_.meter, run) {
  const auto updates =
      static_cast<uint32_t>((total_ + options.accumulate - 1) / options.accumulate);
  steps_.optimizer.set_schedule(Schedule::cosine(updates, updates / 10));
  if (!options.load.empty()) load_model(options.load, steps_.model);
}

LoopOptions ResNetTraining::loop_options() const {
  return {.steps = total_,
          .batches = loader_.batches(),
          .samples = options_.batch,
          .unit = "images",
          .quiet = options_.quiet,
          .snapshots = options_.resume,
          .steps_per_snapshot = options_.snapshot_every,
          .restart = options_.restart,
          .settings = {{"model", options_.model},
                       {"data", options_.data.empty() ? "drawn shapes" : options_.data},
                       {"dtype", name(options_.device.parsed_dtype())},
                       {"batch", options_.batch},
                       {"accumulate", options_.accumulate},
                       {"lr", options_.lr},
                       {"weight_decay", options_.weight_decay},
                       {"seed", options_.seed},
                       {"steps", total_}}};
}

void ResNetTraining::introduce() const {
  if (options_.quiet) return;
  fmt::print("{} ({} parameters) in {} on {}: {} steps of {} {}\n", options_.model,
             steps_.model.parameter_count(), options_.device.dtype, default_device()->info().name,
             total_, options_.batch, options_.data.empty() ? "drawn images" : "images");
}

void ResNetTraining::run() {
  loop_.resume();
  introduce();
  const int64_t batches = loader_.batches();
  loop_.run([&](int64_t i) { steps_.step(loader_.batch(i / batches, i % batches)); });
}

void ResNetTraining::save() const {
  if (options_.save.empty()) return;
  save_model(options_.save, steps_.model, {{"model", options_.model}});
  default_device()->end_step();
}

double ResNetTraining::evaluate() {
  return evaluate_all(steps_, Loader(images_.test, {.batch_size = batch_,
                                                    .mean = images_.statistics.mean,
                                                    .std = images_.statistics.std}))
      .accuracy;
}

nlohmann::json ResNetTraining::report() const {
  nlohmann::json report = loop_.json();
  report.update({{"parameters", steps_.model.parameter_count()},
                 {"train_images", images_.train.size()},
                 {"test_images", images_.test.size()},
                 {"checkpoint", options_.checkpoint},
                 {"checkpoint_every", options_.checkpoint_every},
                 {"images_per_second", loop_.rate()},
                 {"device", device_json()}});
  return report;
}

}  // namespace rw
