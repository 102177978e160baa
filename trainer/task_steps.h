// The steps of a task: what trains its model, in ranks and under plans, too.
#pragma once

#include <memory>

#include "../dist/step_ranks.h"
#include "loop/average.h"
#include "loop/meter.h"
#include "loop/model_steps.h"
#include "program/numerics.h"

namespace rw {

// What a task consists of (Trainer, TaskSteps):
//
//   struct MyTask {
//     // All that it takes to build one, as often as a planner wants it: copied.
//     struct Recipe {
//       NumericsOptions numerics = {};  // both: what TaskSteps does besides
//       AverageOptions average = {};
//     };
//     using Batch = ...;  // what a loader gives
//
//     MyTask(const Recipe& recipe, const StepSettings& settings);
//     MyModel model;
//     // Of its parameters, what ranks.shard() makes of them.
//     std::unique_ptr<Optimizer> make_optimizer(const StepRanks& ranks);
//     // The mean over the batch, counted into the meter: in training, and in an evaluation.
//     Tensor loss_of(const Batch& batch, Meter& meter);
//     double weight_of(const Batch& batch);  // of how many samples that is the mean
//     Batch batch_of(const BatchShape& shape);  // without data, for dry runs
//   };
//
// It may have these, too, in place of what TaskSteps does:
//     // Whether it has taken the step; where it has not, TaskSteps does.
//     bool train_on(const Batch& batch, Optimizer& optimizer, Meter& meter);
//     void evaluate_on(const Batch& batch, Meter& meter);
//     DataParallelOptions rank_options() const;
template <class Task>
class TaskSteps : public ModelSteps, public Task {
 public:
  using Recipe = typename Task::Recipe;  // of the task
  using Batch = typename Task::Batch;    // what it trains on

  TaskSteps(const Recipe& recipe, const StepSettings& settings)
      : Task(recipe, settings),
        ranks(settings),
        optimizer(this->make_optimizer(ranks)),
        numerics(recipe.numerics, *optimizer, settings.dtype),
        average(recipe.average.follow(*optimizer)),
        parallel(share()) {}

  // A step of training, with the update that ends a window. What it makes dies with it, so that all
  // of its memory is the plan's to place.
  void step(const Batch& batch) {
    bool is_done = false;
    if constexpr (requires { &Task::train_on; }) is_done = this->train_on(batch, *optimizer, meter);
    if (!is_done) {
      optimizer->backward(this->loss_of(batch, meter), static_cast<float>(this->weight_of(batch)));
      optimizer->step();
      optimizer->zero_grad();
    }
    default_device()->end_step();
  }
  // Counts into the meter; NoGrad and eval() are the caller's.
  void evaluate(const Batch& batch) {
    if constexpr (requires { &Task::evaluate_on; })
      this->evaluate_on(batch, meter);
    else
      this->loss_of(batch, meter);
    default_device()->end_step();
  }

  void dry_step(const BatchShape& shape) override { step(this->batch_of(shape)); }
  void dry_evaluation(const BatchShape& shape) override {
    dry_evaluate_both(this->model, parallel.get(), average.get(),
                      [&] { evaluate(this->batch_of(shape)); });
  }
  DataParallel* updates_of_ranks() override { return parallel.get(); }
  void flush() override { finish_window(*optimizer); }
  Module& trained() override { return this->model; }

  StepRanks ranks;
  const std::unique_ptr<Optimizer> optimizer;
  NumericsWatch numerics;
  const std::unique_ptr<Ema> average;  // null: none is wanted
  Meter meter;
  const std::unique_ptr<DataParallel> parallel;  // null: there is one rank

 private:
  std::unique_ptr<DataParallel> share() {
    if constexpr (requires { &Task::rank_options; })
      return ranks.share(*optimizer, this->rank_options());
    else
      return ranks.share(*optimizer);
  }
};

// For TrainingProgram::make.
template <class Task>
MakeSteps make_steps(const typename Task::Recipe& recipe) {
  return [recipe](const StepSettings& settings) {
    return std::make_unique<TaskSteps<Task>>(recipe, settings);
  };
}

}  // namespace rw
