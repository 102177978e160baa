// Gradient accumulation on MNIST: Adam one image at a time, the same with 100 micro-batches per
// update, and Adam with batches of 100. Accumulation learns as the large batch does, in the memory
// of the small one.
#include <fmt/format.h>

#include <cmath>

#include "core/ops.h"
#include "data/files.h"
#include "data/idx.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "examples/common/program.h"
#include "examples/common/progress.h"
#include "nn/layers.h"
#include "optim/accumulate.h"
#include "optim/adam.h"

using namespace rw;

namespace {

// The defaults take about two minutes on two CPU cores, nearly all of it in steps of one image.
struct Options {
  DeviceOptions device{.dtype = "f32"};
  std::string data, report;
  std::vector<std::string> runs = {"single", "accumulate", "batch"};
  int epochs = 3, images = 2000, batch = 1;
  uint32_t accumulate = 100;
  uint64_t seed = 1;
  bool quiet = false;

  void add_to(CLI::App& app);
  void validate() const;
};

void Options::add_to(CLI::App& app) {
  app.add_option("--data", data, "folder with MNIST's idx files; without it digits are drawn");
  app.add_option("--images", images, "training images, 0 for all")->capture_default_str();
  app.add_option("--epochs", epochs, "passes over them")->capture_default_str();
  app.add_option("--runs", runs, "which of single, accumulate, batch")
      ->delimiter(',')
      ->check(CLI::IsMember({"single", "accumulate", "batch"}))
      ->capture_default_str();
  app.add_option("--batch", batch, "images per micro-batch")->capture_default_str();
  app.add_option("--accumulate", accumulate, "micro-batches per update")->capture_default_str();
  app.add_option("--seed", seed, "of weights, order and dropout")->capture_default_str();
  app.add_option("--report", report, "write the results to this JSON file");
  app.add_flag("--quiet", quiet, "print the results only");
  device.add_to(app);
}

void Options::validate() const {
  check(epochs > 0, "options", "--epochs must be positive, got {}", epochs);
  check(images >= 0, "options", "--images must be >= 0, got {}", images);
  check(batch > 0, "options", "--batch must be positive, got {}", batch);
  check(accumulate > 0 && int64_t{accumulate} * batch <= 60000, "options",
        "--accumulate times --batch must be in 1 to 60000, got {} and {}", accumulate, batch);
}

struct Images {
  ImageDataset train, test;

  explicit Images(const Options& o) {
    const std::filesystem::path folder =
        o.data.empty() ? synthetic_mnist(cache_directory()) : std::filesystem::path(o.data);
    train = load_mnist(folder, Split::train);
    test = load_mnist(folder, Split::test);
    check(train.image_bytes() == 784 && test.image_bytes() == 784, "mnist",
          "the images must be 28x28, got {}x{} and {}x{}", train.height, train.width, test.height,
          test.width);
    const size_t count = static_cast<size_t>(o.images);
    if (count == 0 || count >= train.size()) return;
    train.labels.resize(count);
    train.pixels.resize(count * train.image_bytes());
  }
};

struct DeviceBatch {
  Tensor pixels, labels;
  explicit DeviceBatch(const Batch& batch) {
    const PurposeScope scope(Purpose::data);
    pixels = tensor(batch.pixels, {batch.size(), 784});
    labels = tensor(batch.labels, {batch.size()});
  }
};

class Mlp : public Module {
 public:
  Mlp() {
    register_module("hidden1", hidden1_);
    register_module("hidden2", hidden2_);
    register_module("output", output_);
    register_module("dropout", dropout_);
  }
  // [N, 784] -> logits [N, 10].
  Tensor forward(Tensor x) override {
    x = dropout_(relu(hidden1_(std::move(x))));
    x = dropout_(relu(hidden2_(std::move(x))));
    return output_(std::move(x));
  }

 private:
  Linear hidden1_{784, 512}, hidden2_{512, 512}, output_{512, 10};
  Dropout dropout_{0.2f};
};

// One of the runs, and what came of it.
struct Run {
  std::string name;
  int batch = 1;
  uint32_t micro_batches = 1;

  double train_loss = 0, accuracy = 0, seconds = 0;
  uint64_t updates = 0, skipped = 0, peak = 0;

  Run(const std::string& name, const Options& o) : name(name), batch(o.batch) {
    if (name == "accumulate") micro_batches = o.accumulate;
    if (name == "batch") batch *= static_cast<int>(o.accumulate);
  }
  std::string title() const {
    return micro_batches == 1 ? fmt::format("Adam, batch {}", batch)
                              : fmt::format("Accumulate(Adam, {}), batch {}", micro_batches, batch);
  }
};

// Share of the images whose largest logit is at the label.
double accuracy(Mlp& model, const ImageDataset& images) {
  const NoGrad guard;
  model.eval();
  Loader loader(images, {.batch_size = 500});
  int64_t correct = 0;
  for (int64_t i = 0; i < loader.batches(); ++i) {
    const Batch batch = loader.batch(0, i);
    const std::vector<int32_t> guess = argmax(model(DeviceBatch(batch).pixels)).to_ints();
    for (size_t k = 0; k < guess.size(); ++k) correct += guess[k] == batch.labels[k];
  }
  return static_cast<double>(correct) / static_cast<double>(images.size());
}

// Forward, backward, and an update when the window is full. Returns the loss, on the device.
Tensor train_step(Mlp& model, Accumulate& optimizer, const Batch& host, DType dtype) {
  const DeviceBatch batch(host);
  Tensor loss;
  {
    const Autocast cast(dtype, dtype == DType::f16);
    loss = cross_entropy(model(batch.pixels), batch.labels);
  }
  optimizer.backward(loss, static_cast<float>(host.size()));
  optimizer.step();
  default_device()->end_step();
  return loss.detach();
}

// Trains and measures a new model. Plain Adam is Accumulate with one micro-batch, to the bit.
void train(Run& run, const Options& o, const Images& images) {
  manual_seed(o.seed);
  Mlp model;
  Accumulate optimizer(Adam(model.parameters()), run.micro_batches);
  const DType dtype = o.device.parsed_dtype();
  if (dtype == DType::f16) optimizer.set_scaler(LossScaler::dynamic());
  Loader loader(images.train, {.batch_size = run.batch, .shuffle = true, .seed = o.seed});
  const int64_t batches = loader.batches();
  const Tensor sum = zeros({});  // of the epoch's losses; it stays on the device
  Progress progress(o.epochs * batches, o.quiet);
  default_device()->reset_peak();
  for (int64_t epoch = 0; epoch < o.epochs; ++epoch) {
    model.train();
    fill_(sum, 0);
    int64_t seen = 0;
    for (int64_t i = 0; i < batches; ++i) {
      const Batch batch = loader.batch(epoch, i);
      const Tensor loss = train_step(model, optimizer, batch, dtype);
      accumulate(loss, sum, static_cast<float>(batch.size()));
      seen += batch.size();
      const int64_t step = epoch * batches + i + 1;
      if (i + 1 != batches && !progress.due(step)) continue;
      run.train_loss = sum.item() / static_cast<double>(seen);
      check<NumericsError>(std::isfinite(run.train_loss), "mnist",
                           "the loss must be finite, got {} at step {} of '{}'; {}", run.train_loss,
                           step, run.title(), optimizer.diagnose());
      if (progress.due(step)) progress.show(step, fmt::format("loss {:.4f}", run.train_loss));
    }
    optimizer.flush();
  }
  run.peak = default_device()->memory_report().peak;
  run.updates = optimizer.updates();
  run.skipped = optimizer.skipped();
  run.accuracy = accuracy(model, images.test);
  run.seconds = progress.seconds();
}

void print_table(const std::vector<Run>& runs) {
  fmt::print("\n{:<32} {:>10} {:>10} {:>8} {:>12} {:>9}\n", "", "train loss", "test acc.",
             "updates", "peak memory", "time");
  for (const Run& run : runs)
    fmt::print("{:<32} {:>10.4f} {:>8.2f} % {:>8} {:>12} {:>7.1f} s\n", run.title(), run.train_loss,
               100 * run.accuracy, run.updates, format_bytes(run.peak), run.seconds);
}

// Compares accumulation with each of the other two.
void print_verdict(const std::vector<Run>& runs) {
  const auto find = [&](std::string_view name) -> const Run* {
    for (const Run& run : runs)
      if (run.name == name) return &run;
    return nullptr;
  };
  const Run* window = find("accumulate");
  if (!window) return;
  fmt::print("\n");
  for (const char* name : {"single", "batch"})
    if (const Run* other = find(name))
      fmt::print(
          "Accumulation against '{}': loss {:+.4f}, accuracy {:+.2f} points, updates {} to "
          "{}, memory {:+.1f} %.\n",
          other->title(), window->train_loss - other->train_loss,
          100 * (window->accuracy - other->accuracy), window->updates, other->updates,
          100 * (static_cast<double>(window->peak) / static_cast<double>(other->peak) - 1));
}

nlohmann::json to_json(const Options& o, const std::vector<Run>& runs) {
  nlohmann::json json = {{"data", o.data.empty() ? "drawn digits" : o.data},
                         {"images", o.images},
                         {"epochs", o.epochs},
                         {"dtype", name(o.device.parsed_dtype())},
                         {"seed", o.seed},
                         {"device", device_json()},
                         {"runs", nlohmann::json::array()}};
  for (const Run& run : runs)
    json["runs"].push_back({{"name", run.name},
                            {"batch", run.batch},
                            {"micro_batches", run.micro_batches},
                            {"train_loss", run.train_loss},
                            {"test_accuracy", run.accuracy},
                            {"updates", run.updates},
                            {"skipped", run.skipped},
                            {"peak_bytes", run.peak},
                            {"seconds", run.seconds}});
  return json;
}

void run_all(const Options& o) {
  o.validate();
  o.device.open();
  const Images images(o);
  fmt::print("MLP 784-512-512-10 in {} on {}: {} {} images, {} epochs\n",
             name(o.device.parsed_dtype()), default_device()->info().name, images.train.size(),
             o.data.empty() ? "drawn" : "MNIST", o.epochs);
  std::vector<Run> runs;
  for (const std::string& name : o.runs) {
    Run& run = runs.emplace_back(name, o);
    if (!o.quiet) fmt::print("{}\n", run.title());
    train(run, o, images);
  }
  print_table(runs);
  print_verdict(runs);
  if (!o.report.empty()) write_json(o.report, to_json(o, runs));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Gradient accumulation on MNIST: one image at a time, accumulated, and in batches.");
  Options options;
  options.add_to(app);
  return run_program(app, argc, argv, [&] { run_all(options); });
}
