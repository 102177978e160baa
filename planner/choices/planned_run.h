// A training run on a device that was planned in advance: packed from its first step on, under its
// budget, with remedies where it does not fit.
//   PlannedRun run({.make = make, .settings = {.batch = 64}});
//   run.guard([&] { ... the training loop, by run.settings() ... });
//   std::cout << run.account().str();
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../forecast/planner.h"
#include "../forecast/savings.h"

namespace rw {

// The memory of a run, its forecast, and what saved how much, in bytes.
struct RunAccount {
  MemoryReport memory;                        // of the whole run; `naive`: of a step
  uint64_t steps_peak = 0;                    // without saving and evaluation
  uint64_t predicted_peak = 0;                // of `memory`, by a dry run
  uint64_t budget = 0;                        // 0: none
  std::string difference;                     // how a forward pass left its plan; empty: none did
  std::vector<Saving> savings;                // attribute_savings() of the settings
  uint64_t host_peak = 0;                     // RAM that this process held at most
  std::vector<std::string> segment_problems;  // of marks in the model
  std::vector<uint64_t> timeline;  // bytes alive over an update, where the program traced one
  // By rank, where there are several and the program gathered them: memory.peak and predicted_peak.
  std::vector<uint64_t> rank_peaks, predicted_rank_peaks;

  std::string str() const;  // tables for people
};

// Plans the default device on this thread while it lives. Planners run the program dry, and the
// real loop takes the same steps.
class PlannedRun {
 public:
  // `recompute` says how to recompute, by a plan that is made now. Throws OutOfMemory, with the
  // least feasible bytes and remedies, if its budget cannot be met.
  // `on_trace` receives the memory of an update in steady state, if before_step() is called, and
  // may be null.
  explicit PlannedRun(TrainingProgram program,
                      const std::optional<AutoRecomputeOptions>& recompute = std::nullopt,
                      std::function<void(const MemoryTrace&)> on_trace = {});
  ~PlannedRun();
  PlannedRun(const PlannedRun&) = delete;
  PlannedRun& operator=(const PlannedRun&) = delete;

  // The settings of the program, with that recomputation.
  const StepSettings& settings() const { return settings_; }

  const Planner& planner() const { return planner_; }  // of the program
  // The result of problems_of_segments() before the run.
  const std::vector<std::string>& segment_problems() const { return segment_problems_; }

  // Runs the body. An OutOfMemory that it throws lists what would fit.
  void guard(const std::function<void()>& body);
  // Call it before each of the `total` steps, from 0 on.
  void before_step(int64_t step, int64_t total);
  // Call it after the steps if saving and evaluation follow.
  void after_steps();

  RunAccount account();  // once all is done

 private:
  void stop_trace();

  Planner planner_;
  StepSettings settings_;
  std::optional<SettingsScope> scope_;
  std::vector<std::string> segment_problems_;
  MemoryReport steps_;  // after the last one
  const std::function<void(const MemoryTrace&)> on_trace_;
  int64_t trace_begin_ = -1, trace_end_ = -1;  // in steps
  bool tracing_ = false;
  std::vector<uint64_t> timeline_;  // as in RunAccount
};

// The problems of the segments that a model is marked with: in the whole run, and of each one.
std::vector<std::string> problems_of_segments(const Planner& planner, const StepSettings& settings);

// The settings with the recomputation that was asked for, found by a search: within a budget,
// reserved bytes stay below it at any time. OutOfMemory has the least feasible bytes and remedies.
StepSettings with_recompute(const Planner& planner, const StepSettings& settings,
                            const AutoRecomputeOptions& recompute);

}  // namespace rw
