// The options of planning: --plan in place of training, and the account that a training run gives
// of its own memory.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "../../planner/choices/choices.h"
#include "../../planner/choices/planned_run.h"
#include "program.h"

namespace rw {

// The options of planning and of accounts of memory. An empty text means that the option was not
// given.
struct PlanningOptions {
  bool plan = false;        // predict instead of training
  bool launches = false;    // with the kernels of two updates
  bool front = false;       // with all ways that are worth having within `memory`
  std::string fit;          // bytes in which the settings are to fit
  std::string memory;       // bytes of the device, in which the quickest settings are chosen
  std::string host_memory;  // bytes of host memory for that
  std::vector<std::string> allowed;  // approximate_ways() that may be chosen
  std::string budget;                // bytes of the device's blocks, for recomputation alone
  std::string recompute;             // how to stay within the budget
  bool keep_8_bits = false;          // plans may keep values in 8 bits
  std::string timeline;              // a file for an HTML page of the memory
  std::string trace;                 // a file for Perfetto or chrome://tracing
  std::string profile;               // a file for the device's profile
  std::string report;                // a folder or a file, as for ReportFile
  double effort = 1;                 // of planning

  void add_to(CLI::App& app);  // adds the options
  // Whether --memory, or REWIND_MEMORY, decides about everything that takes memory.
  bool decides_all() const;
  // Returns the settings of --memory-budget, --recompute, --keep-8-bits and --plan-effort, which
  // show how far planning is. ValueError for --keep-8-bits without --memory-budget.
  std::optional<AutoRecomputeOptions> recomputation() const;
};

// Returns the quickest way to train the program within `options.memory` on the default device, and
// prints them; nothing if that was not given. What other options of the running command say stays.
// OutOfMemory if there are none.
std::optional<Choice> chosen_by_memory(const TrainingProgram& program,
                                       const PlanningOptions& options);

// Returns TrainingProgram::words for the options of the running command.
std::map<std::string, std::string> command_line_words();

// Prints the memory that the program's steps need, and writes the files that were asked for.
// Nothing is allocated or run on the device.
void run_plan(const TrainingProgram& program, const PlanningOptions& options,
              const DeviceOptions& device);

// Plans a run on the default device, and runs `body` in it, whose OutOfMemory lists what would fit.
// Writes the files that were asked for; the body calls before_step() and after_steps().
void run_planned(TrainingProgram program, const PlanningOptions& options,
                 const std::function<void(PlannedRun&)>& body);

RunAccount account_of(PlannedRun& run);                  // on all ranks, with the peaks of all
nlohmann::json account_json(const RunAccount& account);  // includes the device

}  // namespace rw
