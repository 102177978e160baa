// The result of a dry run of a program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../core/memory/device.h"

namespace rw {

// The memory and the work of a program: of all of it, from dry_run(), or, from a Planner, of one
// update of training (`accumulate` steps).
struct Forecast {
  MemoryReport memory;               // as the real device would report it; of the whole program
  WorkByPhase work{};                // of the whole program, or of an update
  std::optional<MemoryTrace> trace;  // where asked for
  std::vector<StepTrace> steps =
      {};  // for Device::learn: the real run is packed from its first step on; not by a Planner

  // By a Planner:
  uint64_t steps_peak = 0;   // memory.peak without saving and evaluation
  double samples = 0;        // that an update sees
  uint64_t allocations = 0;  // that an update makes, where a trace was asked for
  uint64_t from_files = 0;   // bytes of weights that an update reads from files

  double flops() const { return total_flops(work); }             // recomputation included
  double flops_per_sample() const { return flops() / samples; }  // the same per sample
  // The FLOPs of replays relative to those of the rest.
  double recompute_share() const { return rw::recompute_share(work); }

  std::string str() const;  // tables of memory and of the work of an update, for people
};

}  // namespace rw
