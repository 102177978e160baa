// A training program without its task: loop, accumulation, loss scaling, budgets, snapshots, ranks,
// progress, evaluation and report.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "../data/base/prefetch.h"
#include "../data/base/rank_batches.h"
#include "../ops/numerics/overflow.h"
#include "loop/training_loop.h"
#include "program/lasting_output.h"
#include "task_steps.h"
#include "trainer_options.h"

namespace rw {

// Trains a `Task` (task_steps.h) with the batches of a `Source`, which has batches() per epoch,
// seed() and batch(epoch, index), as ImageBatches does. A program derives a class that says what
// its weights and results are, and uses it as apps/resnet.cpp does:
//   run_planned(program, options.planning,
//               [&](PlannedRun& run) { MyTrainer(options, data, run).run(); });
template <class Task, class Source>
class Trainer {
 public:
  using Recipe = typename Task::Recipe;  // the task's recipe

  // `options` and `run` must outlive it. `settings` are those of the run, for resuming:
  // run_settings().
  Trainer(const TrainerOptions& options, PlannedRun& run, const Recipe& recipe,
          std::unique_ptr<Source> training, Settings settings)
      : options_(options),
        settings_(std::move(settings)),
        run_(run),
        steps_(recipe, run.settings()),
        training_(std::move(training)),
        per_epoch_(options.in_step ? training_->batches() / rank_count() * rank_count()
                                   : training_->batches()),
        total_(options.steps ? options.steps : options.epochs * per_epoch_),
        loop_(loop_options(), steps_.model, *steps_.optimizer, steps_.meter, run, &steps_.numerics,
              steps_.average.get()) {
    check(total_ <= std::numeric_limits<uint32_t>::max(), "options",
          "there must be fewer than 2^32 steps, got {}; see --epochs", total_);
    const auto updates =
        static_cast<uint32_t>((total_ + options.accumulate - 1) / options.accumulate);
    steps_.optimizer->set_schedule(options.chosen.schedule(updates));
  }
  virtual ~Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains, from the newest snapshot on if there is one, then saves, evaluates and reports.
  void run() {
    begin();
    loop_.resume();
    if (!options_.quiet) fmt::print("{}\n{}", introduction(), choice());
    // The batches of this rank, which a thread makes; all ranks took as many steps before.
    RankBatches<Source> own(*training_, world().rank(), rank_count(), per_epoch_);
    BatchStream<RankBatches<Source>> batches(own,
                                             {training_->seed(), 0, loop_.start() / rank_count()});
    loop_.run(
        [&](int64_t) {
          last_ = batches.next();
          steps_.step(*last_);
          return samples_of(*last_);
        },
        [this] { return evaluate(options_.quiet); });
    save_weights();
    const ReportFile file(options_.planning.report);
    nlohmann::json report = loop_.json();
    report["title"] = title();
    report["device"] = device_json();
    add_figures(report);
    file.write_so_far(report);
    report.update(evaluate(false));
    const RunAccount account = account_of(run_);
    fmt::print("\n{}\n{}", account.str(), loop_.summary(account));
    report["device"] = account_json(account);
    if (options_.predicted_seconds > 0) compare_times(report);
    file.write(report);
    if (!file.folder().empty()) fmt::print("Report   {}/index.html\n", file.folder());
  }
  // Evaluates the initial weights, as load() gives them, without training.
  void run_evaluation() {
    begin();
    evaluate(false);
  }

 protected:
  // Loads the initial weights. Parameters are whole while it runs.
  virtual void load(TaskSteps<Task>&) {}
  // Describes the model, for a line that continues with "in f16 on ...": "resnet20 (272474
  // parameters)".
  virtual std::string title() const = 0;
  // Returns the text after the number of steps: "of 32 images".
  virtual std::string steps_text() const {
    return fmt::format("of {} {}", batch(), options_.samples);
  }
  // Returns batches to evaluate with, of `batch` samples each.
  virtual std::unique_ptr<Source> testing(int64_t batch) = 0;
  // Describes the result of an evaluation in a line; `whose` is "" or "of the average " and becomes
  // part of it.
  virtual std::string result(const char* whose, const Meter::Values& values) const {
    return fmt::format("{}loss {}{:.4f}", options_.figures, whose, values.loss);
  }
  // Writes the model; if `is_average`, its parameters have the averages' values. Only the first
  // rank calls this.
  virtual void save(bool /*is_average*/) {}
  // Adds figures to the report of the training.
  virtual void add_figures(nlohmann::json&) const {}

  // Evaluates the weights and their average, prints the results, and returns them for the report.
  virtual nlohmann::json evaluate(bool quiet) {
    const std::unique_ptr<Source> source = testing(run_.settings().batch);
    const Evaluation found = evaluate_both(steps_, [&]() -> Source& { return *source; });
    if (!std::isfinite(found.weights.loss))
      fail<NumericsError>("evaluate", "the loss must be finite, got {}{}; {}", found.weights.loss,
                          overflow_of(source->batch(0, 0)), words_about_dtype());
    if (!quiet)
      found.print([&](const char* whose, const Meter::Values& values) {
        fmt::print("{}\n", result(whose, values));
      });
    return found.json(options_.figures);
  }

  double rate() const { return loop_.rate(); }             // units per second of training
  int64_t batch() const { return run_.settings().batch; }  // samples of a full batch
  TaskSteps<Task>& steps() { return steps_; }              // of training
  const TaskSteps<Task>& steps() const { return steps_; }  // of training
  Source& training() { return *training_; }                // the batches to train on
  PlannedRun& planned() { return run_; }                   // the run that was planned

 private:
  // The last batch of an epoch may have fewer samples than the others.
  template <class Batch>
  static int64_t samples_of(const Batch& batch) {
    if constexpr (requires { batch.size(); })
      return batch.size();
    else
      return batch.rows;
  }
  void begin() {
    const auto whole = gather_parameters(steps_.parallel.get());
    load(steps_);
  }
  std::string introduction() const {
    return fmt::format("{} in {} on {}{}: {} steps {}{}", title(), options_.device.dtype,
                       default_device()->info().name, of_ranks(), total_, steps_text(),
                       options_.rate_text());
  }
  // A line about the rate and the schedule, with the reason; empty if the program chose no recipe.
  std::string choice() const {
    const std::string text = options_.chosen_text();
    if (text.empty()) return "";
    const double passes = static_cast<double>(total_) / static_cast<double>(per_epoch_);
    return fmt::format("{}; {:.3g} pass{} over the data\n", text, passes, passes == 1 ? "" : "es");
  }
  // Says how long an update was to take, and how long it took.
  void compare_times(nlohmann::json& report) const {
    const double samples = static_cast<double>(batch()) * options_.accumulate * rank_count();
    const double seconds =
        rate() > 0 ? samples * static_cast<double>(options_.per_sample) / rate() : 0;
    report["predicted_update_seconds"] = options_.predicted_seconds;
    report["update_seconds"] = seconds;
    fmt::print("An update was to take {:.3g} s and took {:.3g} s.\n", options_.predicted_seconds,
               seconds);
  }
  std::string words_about_dtype() const {
    const std::string advice = overflow_advice(run_.settings().dtype);
    return advice.empty() ? "the weights are damaged, or of another model" : advice;
  }
  // Says which op of the forward pass overflows first; empty if none does.
  std::string overflow_of(const typename Task::Batch& batch) {
    const auto found = first_overflow([&] { steps_.loss_of(batch, steps_.meter); });
    return found ? ": " + found->str() : "";
  }
  void save_weights() {
    const auto whole = gather_parameters(steps_.parallel.get());
    if (!is_first_rank()) return;
    save(false);
    if (steps_.average) at_average(*steps_.average, [this] { save(true); });
    default_device()->end_step();
  }
  LoopOptions loop_options() {
    return {.steps = total_,
            .batches = per_epoch_,
            .per_sample = options_.per_sample,
            .unit = options_.unit.empty() ? options_.samples : options_.unit,
            .has_accuracy = options_.has_accuracy,
            .quiet = options_.quiet,
            .points = has_json_lines() || !ReportFile(options_.planning.report).folder().empty()
                          ? 100
                          : 10,
            .snapshots = options_.resume,
            .steps_per_snapshot = options_.snapshot_every,
            .parallel = steps_.parallel.get(),
            .restart = options_.restart,
            .change_dtype = options_.change_dtype,
            .base = options_.frozen_base,
            .allow_rise = options_.allow_rise,
            .find_overflow = [this] { return last_ ? overflow_of(*last_) : ""; },
            .settings = settings_};
  }

  const TrainerOptions& options_;
  const Settings settings_;
  PlannedRun& run_;
  TaskSteps<Task> steps_;
  const std::unique_ptr<Source> training_;
  const int64_t per_epoch_, total_;  // in steps
  std::optional<typename Task::Batch> last_;
  TrainingLoop loop_;
};

}  // namespace rw
