// Planning on the command line: --plan instead of training, and what a training run says about its
// own memory.
#pragma once

#include <functional>
#include <string>

#include "apps/common/planner.h"
#include "apps/common/program.h"
#include "apps/common/savings.h"

namespace rw {

struct PlanningOptions {
  bool plan = false;
  std::string fit, budget, recompute, timeline, trace, profile;

  void add_to(CLI::App& app);
};

// Prints what the program's steps would need, and writes the files that were asked for. Nothing is
// allocated or run on the device.
void run_plan(const PlannedProgram& program, const PlanningOptions& options,
              const DeviceOptions& device, const std::string& report);

// A training run on the default device, and its prediction.
class PlannedRun {
 public:
  PlannedRun(PlannedProgram program, const PlanningOptions& options);
  ~PlannedRun();
  PlannedRun(const PlannedRun&) = delete;
  PlannedRun& operator=(const PlannedRun&) = delete;

  // The program's, with recomputation that keeps it within --memory-budget.
  const StepSettings& settings() const { return program_.settings; }
  // Runs the body. An OutOfMemory that it throws says what would fit.
  void guard(const std::function<void()>& body);
  // To be called before each of the `total` steps: some in steady state are traced.
  void before_step(int64_t step, int64_t total);
  void after_steps();  // to be called once they are over

  // Once all is done: what its memory was, what was predicted, and what saved how much.
  struct Account {
    MemoryReport memory;      // of the whole run; `naive`: of a step
    uint64_t steps_peak = 0;  // without saving and evaluation
    uint64_t predicted_peak = 0;
    std::vector<Saving> savings;
    uint64_t host_peak = 0;                     // bytes of RAM that this process held at most
    std::vector<std::string> segment_problems;  // of marks in the model

    std::string str() const;
    nlohmann::json json() const;  // with the device
  };
  Account account();

 private:
  void stop_trace();

  PlannedProgram program_;
  MemoryReport steps_;  // after the last one
  std::vector<std::string> segment_problems_;
  const PlanningOptions& options_;
  std::unique_ptr<Planner> planner_;
  std::optional<MemoryBudget> budget_;
  int64_t trace_begin_ = -1, trace_end_ = -1;  // steps
  bool tracing_ = false;
};

}  // namespace rw
