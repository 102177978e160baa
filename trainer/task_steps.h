// The training steps of a task, in ranks and under plans, too.
#pragma once

#include <memory>

#include "../dist/step_ranks.h"
#include "../nn/init.h"
#include "loop/average.h"
#include "loop/meter.h"
#include "loop/model_steps.h"
#include "program/numerics.h"

namespace rw {

// The parts of a task (for Trainer and TaskSteps):
//
//   struct MyTask {
//     // Everything that building a task takes. Planners copy it to build one again.
//     struct Recipe {
//       NumericsOptions numerics = {};  // both: further work of TaskSteps
//       AverageOptions average = {};
//     };
//     using Batch = ...;  // of a loader
//
//     MyTask(const Recipe& recipe, const StepSettings& settings);
//     MyModel model;
//     // For the model's parameters, as ranks.placed() returns them and ranks.wrap() wraps it.
//     std::unique_ptr<Optimizer> make_optimizer(const StepRanks& ranks);
//     // Returns the mean over the batch and counts it into the meter, in training and evaluation.
//     Tensor loss_of(const Batch& batch, Meter& meter);
//     double weight_of(const Batch& batch);  // the number of samples in that mean
//     Batch batch_of(const BatchShape& shape);  // has no data, for dry runs
//   };
//
// It may also have these, in place of those of TaskSteps:
//     // Tells whether it has taken the step. If not, TaskSteps takes it.
//     bool train_on(const Batch& batch, Optimizer& optimizer, Meter& meter);
//     void evaluate_on(const Batch& batch, Meter& meter);
//     DataParallelOptions rank_options() const;
//     FileReads reads() const;
template <class Task>
class TaskSteps : public ModelSteps, public Task {
 public:
  using Recipe = typename Task::Recipe;  // the task's recipe
  using Batch = typename Task::Batch;    // a batch to train on

  TaskSteps(const Recipe& recipe, const StepSettings& settings)
      // The scope lives until the task is built: offloaded parameters begin in host memory.
      : Task(recipe,
             (static_cast<void>(init::HostParameters(settings.offloads_parameters())), settings)),
        ranks(settings),
        optimizer(this->make_optimizer(ranks)),
        numerics(recipe.numerics, *optimizer, settings.dtype),
        average(recipe.average.follow(*optimizer)),
        parallel(share()),
        is_fused_(settings.fused_update > 0) {}

  // Takes a step of training, with the update that ends a window. The tensors that it makes die
  // inside it, so the plan can place all of its memory.
  void step(const Batch& batch) {
    bool is_done = false;
    if constexpr (requires { &Task::train_on; }) is_done = this->train_on(batch, *optimizer, meter);
    if (!is_done) {
      // A window of one step needs no weight, and updates inside backward take none.
      const double weight = is_fused_ ? 1 : this->weight_of(batch);
      optimizer->backward(this->loss_of(batch, meter), static_cast<float>(weight));
      optimizer->step();
      optimizer->zero_grad();
    }
    default_device()->end_step();
  }
  // Counts the batch into the meter. The caller sees to NoGrad and eval().
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
  FileReads file_reads() const override {
    if constexpr (requires { &Task::reads; }) return this->reads();
    return {};
  }
  void flush() override { finish_window(*optimizer); }
  Module& trained() override { return this->model; }

  StepRanks ranks;
  const std::unique_ptr<Optimizer> optimizer;
  NumericsWatch numerics;
  const std::unique_ptr<Ema> average;  // null: no average is wanted
  Meter meter;
  const std::unique_ptr<DataParallel> parallel;  // null: there is one rank

 private:
  std::unique_ptr<DataParallel> share() {
    if constexpr (requires { &Task::rank_options; })
      return ranks.share(*optimizer, this->rank_options());
    else
      return ranks.share(*optimizer);
  }

  const bool is_fused_;
};

// Makes steps of the task for TrainingProgram::make.
template <class Task>
MakeSteps make_steps(const typename Task::Recipe& recipe) {
  return [recipe](const StepSettings& settings) {
    return std::make_unique<TaskSteps<Task>>(recipe, settings);
  };
}

}  // namespace rw
