// Your own training program, with everything that ours have: f16 with loss scaling, accumulation,
// --memory-budget and --plan, --resume after any kill, ranks of mpirun, --ema, reports. It supplies
// its model, its loss and its data; ./trainer --help shows the rest.
#include <CLI/CLI.hpp>
#include <rewind/rewind.h>
#include <rewind/trainer/trainer.h>

using namespace rw;

namespace {

// Digits of 28 x 28 pixels in 10 classes.
class DigitsTask {
 public:
  struct Recipe {
    float lr = 1e-3f, weight_decay = 0;
    NumericsOptions numerics = {};
    AverageOptions average = {};
  };
  using Batch = rw::Batch;
  DigitsTask(const Recipe& recipe, const StepSettings& settings)
      : recipe_(recipe), settings_(settings) {
    model.emplace<Linear>(784, 256);
    model.emplace<ReLU>();
    model.emplace<Linear>(256, 10);
  }

  std::unique_ptr<Optimizer> make_optimizer(const StepRanks& ranks) const {
    return ranks.wrap(AdamW(ranks.placed(decay_groups(model.parameters(), recipe_.weight_decay)),
                            {.lr = recipe_.lr}));
  }
  Tensor loss_of(const Batch& batch, Meter& meter) {
    const Tensor x = batch_tensor(batch.pixels, {batch.size(), 784});
    const Tensor y = batch_tensor(batch.labels, {batch.size()});
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    const Tensor logits = model(x), loss = cross_entropy(logits, y);
    meter.add(loss, argmax(logits), y);
    return loss;
  }
  double weight_of(const Batch& batch) const { return static_cast<double>(batch.size()); }
  Batch batch_of(const BatchShape& shape) const { return {.rows = shape.rows_or(settings_.batch)}; }

  Sequential model;

 private:
  const Recipe recipe_;
  const StepSettings settings_;
};

struct Options : TrainerOptions {
  Options() : TrainerOptions{.lr = {.lr = 2e-3}, .epochs = 2, .samples = "images"} {}
  DigitsTask::Recipe recipe() const {
    return {static_cast<float>(rate()), static_cast<float>(weight_decay), numerics, average};
  }
  TrainingProgram program() const {
    return {.title = "digits",
            .samples = "images",
            .make = make_steps<DigitsTask>(recipe()),
            .settings = settings()};
  }
};

class DigitsTrainer : public Trainer<DigitsTask, Loader> {
 public:
  DigitsTrainer(const Options& options, const ImageDataset& train, const ImageDataset& test,
                PlannedRun& run)
      : Trainer(options, run, options.recipe(),
                std::make_unique<Loader>(train, LoaderOptions{.batch_size = int(options.batch),
                                                              .shuffle = true,
                                                              .drop_last = true,
                                                              .seed = options.seed}),
                run_settings(*options.command, options.rate(), {content_hash(train)})),
        test_(test) {}

 protected:
  std::string title() const override { return "a perceptron of 784-256-10"; }
  std::unique_ptr<Loader> testing(int64_t batch) override {
    return std::make_unique<Loader>(test_, LoaderOptions{.batch_size = int(batch)});
  }
  std::string result(const char* whose, const Meter::Values& values) const override {
    check(values.accuracy > 0.8, "digits", "the accuracy must be above 80 %, got {:.1f} %",
          100 * values.accuracy);
    return fmt::format("test accuracy {}{:.1f} %", whose, 100 * values.accuracy);
  }

 private:
  const ImageDataset& test_;
};

void run(Options& options) {
  options.check_numbers();
  options.ranks.share_out(options.accumulate);
  if (options.planning.plan) return run_plan(options.program(), options.planning, options.device);
  options.device.open();
  manual_seed(options.seed);
  const auto folder = synthetic_mnist(synthetic_data_directory());
  const ImageDataset train = load_mnist(folder, Split::train),
                     test = load_mnist(folder, Split::test);
  TrainingProgram program = options.program();
  options.fit_memory(program);
  run_planned(std::move(program), options.planning,
              [&](PlannedRun& run) { DigitsTrainer(options, train, test, run).run(); });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a small network on synthetic digits.");
  Options options;
  options.add_to(app);
  return run_program(app, argc, argv, [&] { run(options); });
}
