// A training program without its task: loop, accumulation, loss scaling, budgets, snapshots, ranks,
// progress, evaluation and report.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "../optim/schedules/schedule.h"
#include "loop/training_loop.h"
#include "program/lasting_output.h"
#include "task_steps.h"
#include "trainer_options.h"

namespace rw {

// What a trainer is told of its program.
struct TrainerAbout {
  std::string samples = "samples";  // what the rate counts: "images"
  int64_t per_sample = 1;           // of them in a sample: tokens in a sequence
  bool has_accuracy = true;         // the meter counts hits, too
  std::string figures = "test_";    // what the names of an evaluation's figures begin with
  Settings settings = {};           // of the run, for resuming: run_settings()
  // How the learning rate falls, after a tenth of the updates that are a warm-up.
  Schedule (*schedule)(uint32_t total, uint32_t warmup, float floor) = Schedule::cosine;
  bool in_step = false;  // all ranks take equally many steps of an epoch
};

// Trains a `Task` (task_steps.h) with the batches of a `Source`, which has batches() per epoch,
// seed() and batch(epoch, index), as ImageBatches. A program derives from it and says what its
// weights and results are; then, as apps/resnet.cpp:
//   ProgramRun planned(program, options.planning);
//   planned.guard([&] { MyTrainer(options, data, planned).run(); });
template <class Task, class Source>
class Trainer {
 public:
  using Recipe = typename Task::Recipe;  // of the task

  // `options` and `run` must outlive it.
  Trainer(const TrainerOptions& options, ProgramRun& run, const Recipe& recipe,
          std::unique_ptr<Source> training, TrainerAbout about)
      : options_(options),
        about_(std::move(about)),
        run_(run),
        steps_(recipe, run.settings()),
        training_(std::move(training)),
        per_epoch_(about_.in_step ? training_->batches() / rank_count() * rank_count()
                                  : training_->batches()),
        total_(options.steps ? options.steps : options.epochs * per_epoch_),
        loop_(loop_options(), steps_.model, *steps_.optimizer, steps_.meter, run, &steps_.numerics,
              steps_.average.get()) {
    const auto updates =
        static_cast<uint32_t>((total_ + options.accumulate - 1) / options.accumulate);
    steps_.optimizer->set_schedule(about_.schedule(updates, updates / 10, 0));
  }
  virtual ~Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains, from the newest snapshot on if there is one, saves, evaluates and reports.
  void run() {
    begin();
    loop_.resume();
    if (!options_.quiet) fmt::print("{}\n", introduction());
    RankStream<Source> batches(*training_, loop_.start(), per_epoch_);
    loop_.run([&](int64_t) { steps_.step(batches.next()); },
              [this] { return evaluate(options_.quiet); });
    save_weights();
    const ReportFile file(options_.planning.report);
    nlohmann::json report = loop_.json();
    report["title"] = title();
    report["device"] = device_json();
    add_figures(report);
    file.write_so_far(report);
    report.update(evaluate(false));
    const RunAccount account = run_.account();
    fmt::print("\n{}\n{}", account.str(), loop_.summary(account));
    report["device"] = account_json(account);
    file.write(report);
    if (!file.folder().empty()) fmt::print("Report   {}/index.html\n", file.folder());
  }
  // Only measures what it is given to begin with.
  void run_evaluation() {
    begin();
    evaluate(false);
  }

 protected:
  // Weights to begin with, for parameters that are whole.
  virtual void load(TaskSteps<Task>&) {}
  // What is trained, for a line that goes on "in f16 on ...": "resnet20 (272474 parameters)".
  virtual std::string title() const = 0;
  // The text after the number of steps: "of 32 images".
  virtual std::string steps_text() const {
    return fmt::format("of {} {}", options_.batch, about_.samples);
  }
  // Batches to evaluate with, `batch` samples each.
  virtual std::unique_ptr<Source> testing(int64_t batch) = 0;
  // A line of what came of it; `whose` is "" or "of the average ", as a part of it.
  virtual std::string result(const char* whose, const Meter::Values& values) const {
    return fmt::format("{}loss {}{:.4f}", about_.figures, whose, values.loss);
  }
  // Writes the model, with the averages in their place where `is_average`; the first rank does.
  virtual void save(bool /*is_average*/) {}
  // For the report of the training.
  virtual void add_figures(nlohmann::json&) const {}

  // Measures the weights and their average, and says so; what the report has of it.
  virtual nlohmann::json evaluate(bool quiet) {
    const std::unique_ptr<Source> source = testing(run_.settings().batch);
    const Evaluation found = evaluate_both(steps_, [&]() -> Source& { return *source; });
    if (!quiet)
      found.print([&](const char* whose, const Meter::Values& values) {
        fmt::print("{}\n", result(whose, values));
      });
    return found.json(about_.figures);
  }

  double rate() const { return loop_.rate(); }             // samples per second of the training
  TaskSteps<Task>& steps() { return steps_; }              // of the training
  const TaskSteps<Task>& steps() const { return steps_; }  // of the training
  Source& training() { return *training_; }                // what it is trained on
  ProgramRun& planned() { return run_; }                   // what was planned

 private:
  void begin() {
    const WholeParameters whole(steps_.parallel.get());
    load(steps_);
  }
  std::string introduction() const {
    return fmt::format("{} in {} on {}{}: {} steps {}{}", title(), options_.device.dtype,
                       default_device()->info().name, of_ranks(), total_, steps_text(),
                       options_.rate_text());
  }
  void save_weights() {
    const WholeParameters whole(steps_.parallel.get());
    if (!is_first_rank()) return;
    save(false);
    if (steps_.average) at_average(*steps_.average, [this] { save(true); });
    default_device()->end_step();
  }
  LoopOptions loop_options() const {
    return {.steps = total_,
            .batches = per_epoch_,
            .samples = options_.batch * about_.per_sample,
            .unit = about_.samples,
            .has_accuracy = about_.has_accuracy,
            .quiet = options_.quiet,
            .points = has_json_lines() || !ReportFile(options_.planning.report).folder().empty()
                          ? 100
                          : 10,
            .snapshots = options_.resume,
            .steps_per_snapshot = options_.snapshot_every,
            .parallel = steps_.parallel.get(),
            .restart = options_.restart,
            .change_dtype = options_.change_dtype,
            .settings = about_.settings};
  }

  const TrainerOptions& options_;
  const TrainerAbout about_;
  ProgramRun& run_;
  TaskSteps<Task> steps_;
  const std::unique_ptr<Source> training_;
  const int64_t per_epoch_, total_;  // steps
  TrainingLoop loop_;
};

}  // namespace rw
