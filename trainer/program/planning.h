// Planning on the command line: --plan instead of training, and what a training run says about its
// own memory.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>

#include "../../planner/forecast/planned_run.h"
#include "program.h"

namespace rw {

// What a training program is to plan, and to tell of its memory.
struct PlanningOptions {
  bool plan = false;      // predict, in place of training
  bool launches = false;  // with the kernels of two updates
  std::string fit;        // bytes that the settings are to fit in; empty, here and below: not asked
  std::string budget;     // bytes of the device's blocks
  std::string recompute;  // how to keep within it
  std::string timeline;   // a file for a page
  std::string trace;      // a file for other viewers
  std::string profile;    // a file for the device's
  std::string report;     // a folder or a file, as ReportFile takes it
  double effort = 1;      // of planning

  void add_to(CLI::App& app);  // the options
  // --memory-budget, --recompute and --plan-effort; it says how far planning is.
  std::optional<AutoRecomputeOptions> recomputation() const;
};

// What the options of a training program are called in remedies.
RemedyWords command_line_words(std::string block = "--checkpoint block");

// Prints what the program's steps would need, and writes the files that were asked for. Nothing is
// allocated or run on the device.
void run_plan(const TrainingProgram& program, const PlanningOptions& options,
              const DeviceOptions& device);

// A planned run that writes the files that were asked for.
class ProgramRun : public PlannedRun {
 public:
  ProgramRun(TrainingProgram program, const PlanningOptions& options);
  ~ProgramRun();

  // To be called before each of the `total` steps: some in steady state are traced.
  void before_step(int64_t step, int64_t total);
  void after_steps();    // to be called once they are over
  RunAccount account();  // with what all ranks had: on all of them

 private:
  void stop_trace();

  const PlanningOptions& options_;
  int64_t trace_begin_ = -1, trace_end_ = -1;  // steps
  bool tracing_ = false;
  std::vector<uint64_t> timeline_;  // of RunAccount
};

nlohmann::json account_json(const RunAccount& account);  // with the device

}  // namespace rw
