// The ranks of a training program: mpirun -n 4 ./rewind resnet ... (docs/parallel.md).
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "../../data/base/prefetch.h"
#include "../../data/base/rank_batches.h"
#include "../../dist/step_ranks.h"

namespace CLI {
class App;
}

namespace rw {

// How many ranks train together; 1 without mpirun.
inline int rank_count() {
  return world().size();
}
// The rank that prints, reports and saves.
inline bool is_first_rank() {
  return world().rank() == 0;
}

// --shard, and --ranks of a plan.
struct RankOptions {
  std::string shard = "none";
  int planned = 0;  // ranks to plan for; 0: those of this run

  void add_to(CLI::App& app);  // after --plan
  // The ranks that train together, or that are planned for.
  int count() const { return planned ? planned : rank_count(); }
  // Makes `accumulate`, steps per update of the whole run, so many that ranks have equally many of
  // them. Notes say what is changed, and what has no use.
  void share_out(uint32_t& accumulate);
  // The settings of this rank from those of the whole run.
  StepSettings of_rank(StepSettings settings) const;
};

// As batches_of(), of batches that the ranks of this run share out: those of this one.
RunOutline::Batches own_batches_of(int64_t samples);

// ValueError where ranks that keep parameters in parts would not all take as many of these steps.
void check_steps_of_ranks(const Optimizer& optimizer, int64_t steps);

// For lines that introduce a run: "" for one process, ", 4 ranks of Open MPI v4.1.4".
std::string of_ranks();

// The signal that any of them got inside of an InterruptScope; 0: none.
int signal_of_ranks();

// The device of a rank: `%r` in its name is the rank's number on its machine, and of several GPUs
// "vulkan" is that one.
std::string device_of_rank(const std::string& device);

// A rank's batches of a loader, made by a thread. `start`: steps of all ranks that were taken
// before; `batches` per epoch, 0: all.
template <class Source>
class RankStream {
 public:
  RankStream(Source& source, int64_t start, int64_t batches = 0)
      : batches_(source, world().rank(), rank_count(), batches),
        stream_(batches_, {source.seed(), 0, start / rank_count()}) {}
  auto next() { return stream_.next(); }  // the next batch of this rank

 private:
  RankBatches<Source> batches_;
  BatchStream<RankBatches<Source>> stream_;
};

}  // namespace rw
