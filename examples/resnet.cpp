// Trains a residual network on CIFAR-10, or on images that it draws itself, in f16 on Vulkan, and
// shows where the memory went.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "core/ops.h"
#include "data/cifar.h"
#include "data/files.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "examples/common/meter.h"
#include "examples/common/program.h"
#include "examples/common/progress.h"
#include "io/checkpoint.h"
#include "io/model.h"
#include "nn/models/resnet.h"
#include "optim/accumulate.h"
#include "optim/sgd.h"

using namespace rw;

namespace {

struct Options {
  DeviceOptions device;
  std::string model = "resnet20", data, checkpoint = "none", report, save, load, resume;
  int batch = 0, epochs = 0, checkpoint_every = 1;  // 0: by the data
  int64_t steps = 0, checkpoint_every_steps = 100;
  uint32_t accumulate = 1;
  double lr = 0.1, weight_decay = 1e-4;
  uint64_t seed = 1;
  bool quiet = false, eval = false;

  void add_to(CLI::App& app);
  void complete();  // checks, and fills in what depends on the data
};

void Options::add_to(CLI::App& app) {
  app.add_option("--data", data,
                 "folder with CIFAR-10's binary files; without it shapes are drawn");
  app.add_option("--model", model,
                 "resnet20, 32, 56, 110 (6k + 2), resnet18, 34, 50, 101, 152, v2-20 (6k + 2), "
                 "v2-bottleneck-164 (9k + 2)")
      ->capture_default_str();
  app.add_option("--batch", batch, "images per step (default 32, with --data 128)");
  app.add_option("--accumulate", accumulate, "steps per update of the weights")
      ->capture_default_str();
  app.add_option("--checkpoint", checkpoint, "recompute activations: none, block or stage")
      ->check(CLI::IsMember({"none", "block", "stage"}))
      ->capture_default_str();
  app.add_option("--checkpoint-every", checkpoint_every, "blocks or stages per segment")
      ->capture_default_str();
  app.add_option("--epochs", epochs, "passes over the images (default 1, with --data 30)");
  app.add_option("--steps", steps, "steps instead of epochs");
  app.add_option("--lr", lr, "highest learning rate")->capture_default_str();
  app.add_option("--weight-decay", weight_decay, "of convolutions and the last layer")
      ->capture_default_str();
  app.add_option("--seed", seed, "of weights, order and augmentation")->capture_default_str();
  app.add_option("--report", report, "write all figures of the run to this JSON file");
  app.add_option("--load", load, "start from the weights in this safetensors file");
  app.add_option("--save", save, "write the trained weights, in PyTorch's layout, to this file");
  app.add_flag("--eval", eval, "only measure the accuracy of the weights given with --load");
  app.add_option("--resume", resume,
                 "keep training checkpoints in this folder and go on from the newest, if any");
  app.add_option("--checkpoint-every-steps", checkpoint_every_steps, "steps between them")
      ->capture_default_str();
  app.add_flag("--quiet", quiet, "print the results only");
  device.add_to(app);
}

void Options::complete() {
  check(batch >= 0, "options", "--batch must be positive, got {}", batch);
  check(accumulate > 0, "options", "--accumulate must be positive, got {}", accumulate);
  check(epochs >= 0 && steps >= 0, "options",
        "--epochs and --steps must be positive, got {} and {}", epochs, steps);
  check(checkpoint_every > 0, "options", "--checkpoint-every must be positive, got {}",
        checkpoint_every);
  check(checkpoint_every_steps > 0, "options", "--checkpoint-every-steps must be positive, got {}",
        checkpoint_every_steps);
  check(!eval || !load.empty(), "options", "--eval needs weights: --load FILE");
  check(std::isfinite(lr) && lr >= 0, "options", "--lr must be a number >= 0, got {}", lr);
  if (batch == 0) batch = data.empty() ? 32 : 128;
  if (epochs == 0) epochs = data.empty() ? 1 : 30;
}

// The number at the end of a model's name; 0 if it does not begin with `prefix`.
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

CheckpointMode checkpoint_mode(const std::string& name) {
  return name == "block" ? CheckpointMode::block : CheckpointMode::stage;
}

// Weight decay is for convolutions and the last layer, not for norms and biases.
std::vector<ParameterGroup> parameter_groups(const ResNet& model) {
  ParameterGroup decayed, plain{.weight_decay = 0};
  for (const Tensor& p : model.parameters())
    (p.rank() > 1 ? decayed : plain).parameters.push_back(p);
  return {decayed, plain};
}

struct Images {
  ImageDataset train, test;
  ChannelStatistics statistics;

  explicit Images(const std::string& given) {
    // Drawn images: as many as two CPU cores train on in a minute or two.
    const std::filesystem::path folder =
        given.empty() ? synthetic_cifar10(cache_directory(), {.train = 4800, .test = 1000})
                      : std::filesystem::path(given);
    train = load_cifar10(folder, Split::train);
    test = load_cifar10(folder, Split::test);
    statistics = channel_statistics(train);
  }
};

struct DeviceBatch {
  Tensor images, labels;
  DeviceBatch(const Batch& batch, const ImageDataset& data, DType dtype) {
    const PurposeScope scope(Purpose::data);
    images =
        cast(tensor(batch.pixels, {batch.size(), data.height, data.width, data.channels}), dtype);
    labels = tensor(batch.labels, {batch.size()});
  }
};

// The trained model, its optimizer and what the run measured.
class Training {
 public:
  Training(const Options& options, const Images& images)
      : options_(options),
        images_(images),
        dtype_(options.device.parsed_dtype()),
        model_(model_config(options.model, images.train.classes)),
        optimizer_(
            Sgd(parameter_groups(model_), {.lr = static_cast<float>(options.lr),
                                           .momentum = 0.9f,
                                           .weight_decay = static_cast<float>(options.weight_decay),
                                           .nesterov = true}),
            options.accumulate),
        loader_(images.train,
                {.batch_size = options.batch,
                 .shuffle = true,
                 .drop_last = images.train.size() > static_cast<size_t>(options.batch),
                 .crop_padding = options.data.empty() ? 0 : 4,
                 .flip = true,
                 .mean = images.statistics.mean,
                 .std = images.statistics.std,
                 .seed = options.seed}) {
    if (options.checkpoint != "none")
      model_.set_checkpoint(checkpoint_mode(options.checkpoint), options.checkpoint_every);
    steps_ = options.steps ? options.steps : options.epochs * loader_.batches();
    const auto updates =
        static_cast<uint32_t>((steps_ + options.accumulate - 1) / options.accumulate);
    optimizer_.set_schedule(Schedule::cosine(updates, updates / 10));
    if (dtype_ == DType::f16) optimizer_.set_scaler(LossScaler::dynamic());
    if (!options.load.empty()) load_model(options.load, model_);
  }

  int64_t steps() const { return steps_; }
  int64_t parameters() const { return model_.parameter_count(); }
  void resume();  // from the newest checkpoint, if there is one
  void run();
  void save(const std::string& file) const {
    save_model(file, model_, {{"model", options_.model}});
  }
  double evaluate();  // share of the test images that are classified correctly
  nlohmann::json report(double accuracy, const MemoryReport& memory) const;

 private:
  TrainingState state() { return {.model = model_, .optimizer = optimizer_}; }
  nlohmann::json settings() const;  // what must not change when training goes on
  void write_checkpoint(int64_t done);
  void step(int64_t index, Meter& meter);
  void note(int64_t step, const Meter::Values& values, Progress& progress);

  const Options& options_;
  const Images& images_;
  DType dtype_;
  ResNet model_;
  Accumulate optimizer_;
  Loader loader_;
  int64_t steps_ = 0, start_ = 0;  // of this process's training, in steps
  double seconds_ = 0;
  nlohmann::json history_ = nlohmann::json::array();
};

nlohmann::json Training::settings() const {
  return {{"model", options_.model},
          {"data", options_.data.empty() ? "drawn shapes" : options_.data},
          {"dtype", name(dtype_)},
          {"batch", options_.batch},
          {"accumulate", options_.accumulate},
          {"lr", options_.lr},
          {"weight_decay", options_.weight_decay},
          {"seed", options_.seed},
          {"steps", steps_}};
}

void Training::resume() {
  const auto position = CheckpointDirectory(options_.resume).load_latest(state());
  if (!position) return;
  const auto saved = nlohmann::json::parse(position->json);
  check(saved.at("settings") == settings(), "resume", "'{}' is of another run: {}, not {}",
        options_.resume, saved.at("settings").dump(), settings().dump());
  start_ = position->step;
  history_ = saved.at("history");
  if (!options_.quiet) fmt::print("going on after step {} of '{}'\n", start_, options_.resume);
}

void Training::write_checkpoint(int64_t done) {
  const nlohmann::json saved = {{"settings", settings()}, {"history", history_}};
  CheckpointDirectory(options_.resume)
      .save(state(), {.step = done,
                      .epoch = done / loader_.batches(),
                      .index = done % loader_.batches(),
                      .json = saved.dump()});
}

void Training::run() {
  model_.train();
  Meter meter;
  Progress progress(steps_, options_.quiet);
  int64_t saved = start_;
  for (int64_t i = start_; i < steps_; ++i) {
    step(i, meter);
    if (progress.due(i + 1)) note(i + 1, meter.read(), progress);
    // Between updates only: the gradients of a window are not part of a checkpoint.
    if (!options_.resume.empty() && i + 1 - saved >= options_.checkpoint_every_steps &&
        optimizer_.position() == 0) {
      write_checkpoint(i + 1);
      saved = i + 1;
    }
  }
  optimizer_.flush();
  seconds_ = progress.seconds();
}

void Training::step(int64_t index, Meter& meter) {
  const int64_t batches = loader_.batches();
  const DeviceBatch batch(loader_.batch(index / batches, index % batches), images_.train, dtype_);
  Tensor loss;
  {
    const Autocast autocast(dtype_, dtype_ == DType::f16);
    const Tensor logits = model_(batch.images);
    loss = cross_entropy(logits, batch.labels);
    meter.add(loss, argmax(logits), batch.labels);
  }
  optimizer_.backward(loss, static_cast<float>(batch.labels.numel()));
  optimizer_.step();
  default_device()->end_step();
}

void Training::note(int64_t step, const Meter::Values& values, Progress& progress) {
  check<NumericsError>(
      std::isfinite(values.loss), "train",
      "the loss must be finite, got {} at step {}; lower --lr or use --dtype f32 ({})", values.loss,
      step, optimizer_.diagnose());
  const double rate = static_cast<double>((step - start_) * options_.batch) / progress.seconds();
  const uint64_t memory = default_device()->memory_report().peak;
  progress.show(step, fmt::format("loss {:.3f}  accuracy {:.1f} %  {:.0f} images/s  {}",
                                  values.loss, 100 * values.accuracy, rate, format_bytes(memory)));
  history_.push_back({{"step", step},
                      {"loss", values.loss},
                      {"accuracy", values.accuracy},
                      {"seconds", progress.seconds()}});
}

double Training::evaluate() {
  const NoGrad guard;
  const Autocast autocast(dtype_, dtype_ == DType::f16);
  model_.eval();
  Loader loader(images_.test, {.batch_size = options_.batch,
                               .mean = images_.statistics.mean,
                               .std = images_.statistics.std});
  Meter meter;
  for (int64_t i = 0; i < loader.batches(); ++i) {
    const DeviceBatch batch(loader.batch(0, i), images_.test, dtype_);
    const Tensor logits = model_(batch.images);
    meter.add(cross_entropy(logits, batch.labels), argmax(logits), batch.labels);
  }
  return meter.read().accuracy;
}

nlohmann::json Training::report(double accuracy, const MemoryReport& memory) const {
  nlohmann::json report = settings();
  report.update(
      {{"parameters", parameters()},
       {"train_images", images_.train.size()},
       {"test_images", images_.test.size()},
       {"checkpoint", options_.checkpoint},
       {"checkpoint_every", options_.checkpoint_every},
       {"updates", optimizer_.updates()},
       {"skipped_updates", optimizer_.skipped()},
       {"loss_scale", optimizer_.loss_scale()},
       {"train_seconds", seconds_},
       {"images_per_second", static_cast<double>((steps_ - start_) * options_.batch) / seconds_},
       {"test_accuracy", accuracy},
       {"history", history_},
       {"device", device_json(memory)}});
  return report;
}

void print_accuracy(double accuracy, const Images& images) {
  fmt::print("test accuracy {:.2f} % of {} images\n", 100 * accuracy, images.test.size());
}

void train(Options options) {
  options.complete();
  options.device.open();
  manual_seed(options.seed);
  const Images images(options.data);
  Training training(options, images);
  if (options.eval) return print_accuracy(training.evaluate(), images);
  if (!options.resume.empty()) training.resume();
  if (!options.quiet)
    fmt::print("{} ({} parameters) in {} on {}: {} steps of {} {}\n", options.model,
               training.parameters(), options.device.dtype, default_device()->info().name,
               training.steps(), options.batch, options.data.empty() ? "drawn images" : "images");
  training.run();
  if (!options.save.empty()) training.save(options.save);
  const MemoryReport memory = default_device()->memory_report();  // of training alone
  const double accuracy = training.evaluate();
  print_accuracy(accuracy, images);
  fmt::print("\n{}", memory.str());
  if (!options.report.empty()) write_json(options.report, training.report(accuracy, memory));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a residual network on CIFAR-10, or on images that it draws.");
  Options options;
  options.add_to(app);
  return run_program(app, argc, argv, [&] { train(options); });
}
