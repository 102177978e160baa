// Gradient accumulation on MNIST: compares Adam with one image at a time, Adam with 100
// micro-batches per update, and Adam with batches of 100. Accumulation learns as the large batch
// does, in the memory of the small one.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <functional>

#include "apps/mnist/steps.h"
#include "core/base/interrupt.h"
#include "core/base/rng.h"
#include "data/base/files.h"
#include "data/content_hash.h"
#include "data/images/idx.h"
#include "data/images/loader.h"
#include "data/images/synthetic.h"
#include "trainer/program/progress.h"
#include "trainer/program/settings.h"
#include "trainer/program/shared_options.h"
#include "trainer/trainer_options.h"

using namespace rw;

namespace {

// The defaults take about two minutes on two CPU cores, nearly all of it in steps of one image.
struct Options : TrainerOptions {
  Options()
      : TrainerOptions{.device = {.dtype = "f32"},
                       .batch = 1,
                       .epochs = 3,
                       .accumulate = 100,
                       .samples = "images",
                       .segments = {"block"}} {}

  std::string data;
  std::vector<std::string> runs = {"single", "accumulate", "batch"};
  int images = 2000;

  void add_to(CLI::App& app);
  void check_numbers() const;
  void share_out();
  MnistTask::Recipe recipe() const { return {numerics, average}; }
};

void Options::add_to(CLI::App& app) {
  shared_option(app, "--data", data, "MNIST's idx files; without it, the digits are synthetic");
  app.add_option("--images", images, "the number of training images, 0 for all")
      ->capture_default_str();
  shared_option(app, "--epochs", epochs)->capture_default_str();
  app.add_option("--runs", runs, "the runs to make: single, accumulate, batch")
      ->delimiter(',')
      ->check(CLI::IsMember({"single", "accumulate", "batch"}))
      ->capture_default_str();
  add_common_to(app);
}

// Ranks share the run with accumulation; the runs that it is compared with are those of one
// process.
void Options::share_out() {
  if (ranks.count() > 1) runs = {"accumulate"};
  ranks.share_out(accumulate);
}

void Options::check_numbers() const {
  check(epochs > 0, "options", "--epochs must be positive, got {}", epochs);
  TrainerOptions::check_numbers();
  check(images >= 0, "options", "--images must be >= 0, got {}", images);
  check(planning.plan || batch * accumulate <= 60000, "options",
        "--accumulate times --batch must be in 1 to 60000, got {} and {}", accumulate, batch);
  const bool pictures = !planning.timeline.empty() || !planning.trace.empty();
  check(runs.size() == 1 || !(pictures || (planning.plan && !planning.report.empty())), "options",
        "--timeline, --trace and the report of a plan show one run: choose it with --runs");
}

struct Images {
  ImageDataset train, test;

  explicit Images(const Options& o) {
    const std::filesystem::path folder = o.data.empty()
                                             ? synthetic_mnist(synthetic_data_directory())
                                             : std::filesystem::path(o.data);
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

// One of the runs and its results.
struct Run {
  std::string name;
  int64_t batch = 1;
  uint32_t micro_batches = 1;

  // The figures after an epoch: the mean loss in training, and the results on the test images.
  struct Epoch {
    double train_loss = 0, seconds = 0;
    Evaluation test = {};
  };
  std::vector<Epoch> history;
  double train_loss = 0, accuracy = NAN, seconds = 0;  // NAN: not evaluated yet
  uint64_t updates = 0, skipped = 0;
  RunAccount account;

  Run(const std::string& name, const Options& o) : name(name), batch(o.batch) {
    if (name == "accumulate") micro_batches = o.accumulate;
    if (name == "batch") batch *= o.accumulate;
  }
  std::string title() const {
    return micro_batches == 1 ? fmt::format("Adam, batch {}", batch)
                              : fmt::format("Accumulate(Adam, {}), batch {}", micro_batches, batch);
  }
  static std::map<std::string, std::string> words() {
    std::map<std::string, std::string> words = command_line_words();
    words["batch"] = "--runs accumulate --batch {} --accumulate {}";
    return words;
  }
  // `images` and `tests` are the numbers of images; 0: unknown, enough for full batches.
  TrainingProgram program(const Options& o, int64_t images, int64_t tests) const {
    return {.title = fmt::format("MLP 784-512-512-10, {}", title()),
            .samples = "images",
            .make = make_steps<MnistTask>(o.recipe()),
            .settings = o.ranks.of_rank({.dtype = o.device.parsed_dtype(),
                                         .batch = images ? std::min(batch, images) : batch,
                                         .accumulate = micro_batches,
                                         .checkpoint = o.checkpoint}),
            .steps = images ? batches_of(images) : BatchShapes{},
            .evaluation = tests ? own_batches_of(tests) : BatchShapes{},
            .estimator_states = 4,
            .words = words(),
            .most_evaluated = 500};
  }
};

// `trained` counts the images of this rank.
StepFigures figures_of(const Run& run, int64_t trained, double seconds) {
  const MemoryReport memory = default_device()->memory_report();
  return {.loss = run.train_loss,
          .rate = sum_over(world(), static_cast<double>(trained)) / seconds,
          .unit = "images",
          .now = memory.live,
          .peak = memory.peak,
          .most = memory.limit};
}

// Trains and evaluates a new model. `after_epoch` is called when the history has grown.
void train(Run& run, const Options& o, const Images& images, PlannedRun& planned,
           const std::function<void()>& after_epoch) {
  manual_seed(o.seed);
  default_device()->reset_peak();
  MnistSteps steps(o.recipe(), planned.settings());
  Loader loader(images.train,
                {.batch_size = static_cast<int>(run.batch), .shuffle = true, .seed = o.seed});
  const int64_t batches = loader.batches(), total = o.epochs * batches;
  check_steps_of_ranks(*steps.optimizer, batches);
  const InterruptScope interrupts;
  Progress progress(total, o.quiet);
  int64_t trained = 0;
  for (int64_t epoch = 0; epoch < o.epochs; ++epoch) {
    steps.model.train();
    steps.meter.clear();
    const int64_t ranks = rank_count();
    for (int64_t i = 0; i < batches; i += ranks) {
      const int64_t own = i + world().rank(), done = std::min(i + ranks, batches);
      const int64_t step = epoch * batches + done;
      planned.before_step((epoch * batches + i) / ranks, total / ranks);
      default_generator().begin_stream(static_cast<uint64_t>(epoch * batches + own));
      if (own < batches) {
        const Batch batch = loader.batch(epoch, own);
        steps.step(batch);
        trained += batch.size();
      } else {
        steps.parallel->skip();
      }
      if (const int signal = signal_of_ranks())
        throw Interrupted(signal,
                          fmt::format("in '{}' after step {} of {}", run.title(), step, total));
      const bool is_due = progress.due(step, done - i);
      if (done != batches && !is_due) continue;
      run.train_loss = steps.meter.peek().loss;
      check<NumericsError>(std::isfinite(run.train_loss), "mnist",
                           "the loss must be finite, got {} at step {} of '{}'; {}", run.train_loss,
                           step, run.title(), steps.numerics.diagnose());
      if (is_due) progress.show(step, figures_of(run, trained, progress.seconds()));
    }
    steps.flush();
    run.updates = steps.optimizer->updates();
    run.skipped = steps.optimizer->skipped();
    if (epoch + 1 == o.epochs) {
      planned.after_steps();
      run.account.memory = default_device()->memory_report();
      steps.numerics.print();
      if (run.updates == 0) run.history.clear();
      conclude_training(*steps.optimizer, o.quiet);
    }
    const auto rows = static_cast<int>(planned.settings().evaluation_batch);
    const Evaluation measured =
        evaluate_both(steps, [&] { return Loader(images.test, {.batch_size = rows}); });
    run.accuracy = measured.weights.accuracy;
    run.seconds = progress.seconds();
    run.history.push_back({run.train_loss, run.seconds, measured});
    if (!o.quiet) {
      fmt::print("epoch {:>3}: loss {:.4f}, test loss {:.4f}, test accuracy {:.2f} %", epoch + 1,
                 run.train_loss, measured.weights.loss, 100 * run.accuracy);
      if (measured.average)
        fmt::print(", of the average {:.2f} %", 100 * measured.average->accuracy);
      fmt::print("\n");
    }
    after_epoch();
  }
  run.account = account_of(planned);
}

void print_table(const std::vector<Run>& runs) {
  fmt::print("\n{:<32} {:>10} {:>10} {:>8} {:>12} {:>9}\n", "", "train loss", "test acc.",
             "updates", "peak memory", "time");
  for (const Run& run : runs)
    fmt::print("{:<32} {:>10.4f} {:>10} {:>8} {:>12} {:>7.1f} s\n", run.title(), run.train_loss,
               std::isnan(run.accuracy) ? "-" : fmt::format("{:.2f} %", 100 * run.accuracy),
               run.updates, format_bytes(run.account.memory.peak), run.seconds);
}

// Compares accumulation with each of the other two runs.
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
          100 * (static_cast<double>(window->account.memory.peak) /
                     static_cast<double>(other->account.memory.peak) -
                 1));
}

nlohmann::json history_json(const Run& run) {
  nlohmann::json history = nlohmann::json::array();
  for (const Run::Epoch& epoch : run.history) {
    history.push_back({{"train_loss", epoch.train_loss}, {"seconds", epoch.seconds}});
    history.back().update(epoch.test.json("test_"));
  }
  return history;
}

nlohmann::json to_json(const Options& o, const std::vector<Run>& runs) {
  nlohmann::json json = {{"title", "Gradient accumulation on MNIST"},
                         {"data", o.data.empty() ? "synthetic digits" : o.data},
                         {"images", o.images},
                         {"epochs", o.epochs},
                         {"dtype", name(o.device.parsed_dtype())},
                         {"seed", o.seed},
                         {"ema", o.average.decay},
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
                            {"peak_bytes", run.account.memory.peak},
                            {"memory", account_json(run.account)},
                            {"seconds", run.seconds},
                            {"history", history_json(run)}});
  return json;
}

void write_results(const Options& o, const std::vector<Run>& runs) {
  ReportFile(o.planning.report).write(to_json(o, runs));
  print_table(runs);
  print_verdict(runs);
}

void plan_all(const Options& o) {
  for (const std::string& name : o.runs)
    run_plan(Run(name, o).program(o, 0, 0), o.planning, o.device);
}

void run_all(Options& o) {
  o.share_out();
  o.check_numbers();
  if (o.planning.plan) return plan_all(o);
  o.device.open();
  const Images images(o);
  check_ranks_alike(data_settings({content_hash(images.train), content_hash(images.test)}));
  fmt::print("MLP 784-512-512-10 in {} on {}: {} {} images, {} epochs\n",
             name(o.device.parsed_dtype()), default_device()->info().name, images.train.size(),
             o.data.empty() ? "synthetic" : "MNIST", o.epochs);
  std::vector<Run> runs;
  for (const std::string& name : o.runs) {
    Run& run = runs.emplace_back(name, o);
    if (!o.quiet) fmt::print("{}\n", run.title());
    try {
      const auto all = static_cast<int64_t>(images.train.size()),
                 tests = static_cast<int64_t>(images.test.size());
      TrainingProgram program = run.program(o, all, tests);
      TrainingProgram fixed = program;
      fixed.words.erase("batch");  // which the runs are about
      if (const auto chosen = chosen_by_memory(fixed, o.planning))
        program.settings = chosen->settings;
      run_planned(std::move(program), o.planning, [&](PlannedRun& planned) {
        train(run, o, images, planned,
              [&] { ReportFile(o.planning.report).write_so_far(to_json(o, runs)); });
      });
    } catch (...) {  // the epochs so far are not lost
      if (run.history.empty()) runs.pop_back();
      if (!runs.empty()) write_results(o, runs);
      throw;
    }
    ReportFile(o.planning.report).write_so_far(to_json(o, runs));
  }
  write_results(o, runs);
  fmt::print("\n{}:\n{}", runs.back().title(), runs.back().account.str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Gradient accumulation on MNIST: one image at a time, accumulated, and in batches.");
  Options options;
  options.add_to(app);
  return run_program(app, argc, argv, [&] { run_all(options); });
}
