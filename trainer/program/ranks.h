// The ranks of a training program: mpirun -n 4 ./rewind resnet ... (docs/parallel.md).
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "../../dist/step_ranks.h"

namespace CLI {
class App;
}

namespace rw {

// Returns how many ranks train together; 1 without mpirun.
inline int rank_count() {
  return world().size();
}
// Tells whether this is the rank that prints, reports and saves.
inline bool is_first_rank() {
  return world().rank() == 0;
}

// The options --shard, and --ranks of a plan.
struct RankOptions {
  std::string shard = "none";
  int planned = 0;  // ranks to plan for; 0: those of this run

  void add_to(CLI::App& app);  // must be called after --plan was added
  // Returns the number of ranks that train together, or that are planned for.
  int count() const { return planned ? planned : rank_count(); }
  // Changes `accumulate`, the steps per update of the whole run, so that all ranks have the same
  // number of them. Notes say what is changed, and which options have no effect.
  void share_out(uint32_t& accumulate);
  // Returns the settings of this rank from those of the whole run.
  StepSettings of_rank(StepSettings settings) const;
};

// Returns the same as batches_of() for batches that the ranks of this run share, and returns those
// of this rank.
BatchShapes own_batches_of(int64_t samples);

// Throws ValueError if ranks that keep parameters in parts would not all take the same number of
// these steps.
void check_steps_of_ranks(const Optimizer& optimizer, int64_t steps);

// Returns a text for lines that introduce a run: "" for one process, ", 4 ranks of Open MPI
// v4.1.4".
std::string of_ranks();

// Returns the signal that any of the ranks got inside an InterruptScope, or 0.
int signal_of_ranks();

// Returns the device of a rank: `%r` in its name is the rank's number on its machine, and among
// several GPUs "vulkan" is the one with that number.
std::string device_of_rank(const std::string& device);

}  // namespace rw
