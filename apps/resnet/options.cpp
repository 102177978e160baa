#include "apps/resnet/options.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "data/images/cifar.h"
#include "io/models/classifier.h"
#include "trainer/program/shared_options.h"

namespace rw {

namespace {

constexpr int cifar_image = 32;  // the height and width of CIFAR-10's images

}  // namespace

void ResNetOptions::add_to(CLI::App& app) {
  shared_option(
      app, "--data", data,
      "a folder of photographs (PNG, JPEG, WebP) for each class, or train/ and val/ (or other "
      "usual names of splits) with these; or CIFAR-10's binary files; without it, the images are "
      "synthetic");
  shared_option(app, "--model", model,
                "resnet20, 32, 56, 110 (6k + 2), resnet18, 34, 50, 101, 152, v2-20 (6k + 2), "
                "v2-bottleneck-164 (9k + 2) (default resnet20, for images of more than 64 "
                "pixels resnet18)");
  app.add_option("--norm", norm,
                 "the normalisation: batch, or group, which looks at one image only")
      ->check(CLI::IsMember({"batch", "group"}))
      ->capture_default_str();
  must_be_positive(
      app.add_option("--image", image,
                     "the height and width to which photographs are scaled (default: "
                     "about what half of them have, but at most 224), or to plan for"));
  app.add_flag(
      "--strict", strict,
      "end with an error at a photograph that cannot be read, which is left out otherwise");
  shared_option(app, "--test-share", test_share,
                "of the photographs of each class, if there is no val/")
      ->capture_default_str();
  app.add_flag("--exact-batch-norm", exact_batch_norm,
               "run the --accumulate batches of an update side by side, so that BatchNorm sees all "
               "of them as in one large batch, in about its memory: see --checkpoint");
  must_be_positive(shared_option(app, "--epochs", epochs,
                                 "default 1, with --data 30, or more for few photographs"));
  must_be_positive(shared_option(app, "--steps", steps, "instead of --epochs"));
  shared_option(app, "--load", load);
  shared_option(app, "--save", save, "a safetensors file, in PyTorch's layout");
  shared_flag(app, "--eval", eval);
  app.add_option("--predict", predict,
                 "only classify these photographs, with the weights given with --load")
      ->needs("--load")
      ->excludes("--eval");
  TrainerOptions::add_to(app);
  must_be_positive(shared_option(app, "--classes", classes, "default as in --data"))
      ->needs("--plan");
}

void ResNetOptions::check_own_numbers() const {
  check(!eval || average.decay == 0, "options",
        "--ema follows training: there is none with --eval");
  check(!eval || !load.empty(), "options", "--eval needs weights: --load FILE");
  check(image >= 0 && classes >= 0 && classes != 1, "options",
        "--image and --classes must be positive, got {} and {}", image, classes);
  check(test_share > 0 && test_share < 1, "options", "--test-share must be in (0, 1), got {}",
        test_share);
}

// A missing file, or one of another kind, becomes an error when its weights are wanted.
void ResNetOptions::take_from_file() {
  if (load.empty() || !std::filesystem::is_regular_file(load)) return;
  const ImageClassifier stored = read_image_classifier(SafetensorsFile(load));
  if (model.empty()) model = stored.model;
  if (image == 0) image = stored.image;
}

// Photographs have the size of most of them, in steps of 16 pixels, but no more than is usual.
int64_t ResNetOptions::image_of_data() const {
  constexpr int usual_image = 224, step = 16;
  if (!photos_) return predict.empty() ? cifar_image : usual_image;
  return std::clamp((photos_->usual_side() + step / 2) / step * step, cifar_image, usual_image);
}

void ResNetOptions::complete() {
  check_own_numbers();
  const bool has_photos = std::filesystem::is_directory(data) && !is_cifar10(data);
  const bool cifar = !data.empty() && !has_photos;
  constexpr int cifar_classes = 10, small_image = 64;
  take_from_file();
  if (has_photos && predict.empty()) {
    const PhotoFolderOptions how = {
        .test_share = test_share, .strict = strict, .trains = !eval, .quiet = quiet};
    photos_ = std::make_shared<PhotoFolder>(data, how);
  }
  const bool any_image = photos_ || !predict.empty();
  if (image == 0) image = image_of_data();
  check(any_image || planning.plan || image == cifar_image, "options",
        "--image must be {} for CIFAR-10 and synthetic images, got {}; other sizes are for "
        "photographs",
        cifar_image, image);
  if (model.empty()) model = image > small_image ? "resnet18" : "resnet20";
  if (classes == 0 && planning.plan)
    classes = photos_ ? static_cast<int>(photos_->train.class_names.size()) : cifar_classes;
  if (batch == 0) batch = cifar ? 128 : 32;
  const bool takes_passes = epochs == 0;
  if (takes_passes) epochs = 1;
  check_numbers();
  ranks.share_out(accumulate);
  in_step = joins_ranks();  // ranks that normalise together take one batch at a time
  if (in_step) {
    check(accumulate == static_cast<uint32_t>(ranks.count()), "options",
          "--exact-batch-norm joins one batch of each rank: --accumulate must be {}, got {}",
          ranks.count(), accumulate);
  } else if (exact_batch_norm) {  // parts that run side by side are one step
    check(planning.budget.empty() && planning.recompute.empty(), "options",
          "--memory-budget and --recompute plan one tape, with --exact-batch-norm there is "
          "one for each micro-batch: use --checkpoint");
    batch *= accumulate;
    steps = (steps + accumulate - 1) / accumulate;
    parts = std::exchange(accumulate, 1);
  }
  take_recipe(takes_passes && !data.empty() && steps == 0);
}

// A batch has no more photographs than there are.
void ResNetOptions::take_recipe(bool takes_passes) {
  const int64_t samples = photos_ ? static_cast<int64_t>(photos_->train.size()) : 0;
  chosen = rw::recipe({.kind = TrainingWork::Kind::images,
                       .is_loaded = !load.empty(),
                       .batch = (photos_ ? std::min(batch, samples) : batch) * accumulate,
                       .samples = takes_passes ? samples : 0});
  if (takes_passes) epochs = chosen.passes;
}

bool ResNetOptions::joins_ranks() const {
  return exact_batch_norm && ranks.count() > 1;
}

namespace {

// Returns the number at the end of a model's name, or 0 if it does not begin with `prefix`.
int depth_after(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return 0;
  const std::string digits = name.substr(prefix.size());
  const bool number = !digits.empty() && digits.size() < 6 &&
                      digits.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::stoi(digits) : 0;
}

ResNetConfig model_config(const std::string& name, int classes) {
  if (const int depth = depth_after(name, "v2-bottleneck-"))
    return resnet_cifar(depth, 2, BlockKind::bottleneck, classes);
  if (const int depth = depth_after(name, "v2-"))
    return resnet_cifar(depth, 2, BlockKind::basic, classes);
  const int depth = depth_after(name, "resnet");
  check(depth > 0, "options", "--model must be resnetN, v2-N or v2-bottleneck-N, got {}", name);
  for (const int imagenet : {18, 34, 50, 101, 152})
    if (depth == imagenet) return resnet_imagenet(depth, classes);
  return resnet_cifar(depth, 1, BlockKind::basic, classes);
}

}  // namespace

ResNetRecipe ResNetOptions::recipe(int classes) const {
  ResNetConfig config = model_config(model, classes);
  // 32 groups are usual, but in the narrow networks for CIFAR-10 such groups would have half a
  // channel.
  if (norm == "group") config.norm_groups = config.widths[0] < 64 ? 8 : 32;
  return {.model = config,
          .height = image,
          .width = image,
          .lr = static_cast<float>(rate()),
          .weight_decay = static_cast<float>(weight_decay),
          .parts = parts,
          .joins_ranks = joins_ranks(),
          .numerics = numerics,
          .average = average};
}

TrainingProgram ResNetOptions::program(const ResNetRecipe& recipe) const {
  std::map<std::string, std::string> words = command_line_words();
  if (exact_batch_norm) words.erase("budget"), words.erase("batch");  // they do not go together
  return {.title = fmt::format("{} for {}x{} images of {} classes", model, recipe.height,
                               recipe.width, recipe.model.classes),
          .samples = "images",
          .make = make_steps<ResNetTask>(recipe),
          .settings = settings(),
          .loads = !load.empty(),
          .saves = !save.empty() && !eval,
          .has_batch_statistics = norm == "batch",
          .estimator_states = 2,
          .words = std::move(words)};
}

}  // namespace rw
