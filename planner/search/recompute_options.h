// How to recompute: the options of Search and AutoRecompute, and the words of users for them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../core/memory/process_memory.h"
#include "../follow/op_times.h"

namespace rw {

// The goal of a plan, and the effort to find it.
struct AutoRecomputeOptions {
  // The goal of a plan.
  enum class Mode {
    budget,  // as little recomputation as stays within the budget
    memory,  // the least peak with every op run at most twice
    speed,   // keeps the outputs of matrix products, convolutions and the like
    // No plan: drops values and makes them again while it runs, to stay within the budget.
    evict,
    collection,  // keeps what `collection` names: ops, or values by checkpoint_name()
  };
  Mode mode = Mode::budget;  // the goal of the plans
  uint64_t budget = 0;       // most bytes of the device's blocks; 0: any number (not for `budget`)
  // The cost of moving a byte, as in OpCost::total(); 0: only FLOPs count.
  double flops_per_byte = 20;
  // Costs are seconds by these times; null: they are FLOPs and bytes.
  std::shared_ptr<OpTimes> times = {};
  // The most plans to measure; 0: 24 in a Search, and 12 where a program waits for the plan of its
  // steps.
  int candidates = 0;
  // Bounds the work of each answer: with 1 it takes at most 2 seconds for passes of up to 2000 ops,
  // and at most 20 for any. The work is counted, not timed, so the same program gets the same
  // plans.
  double effort = 1;
  // Plans may keep values in host memory where the device has memory of its own: so many bytes at
  // most, half of this machine's memory where nothing else is said. 0: plans recompute only.
  uint64_t host_bytes = host_memory_bytes() / 2;
  // Plans may keep values in 8 bits, which makes gradients approximate (planner/graph/plan.h,
  // core/tensor/quantize.h); losses and results of the forward pass stay as they are. Only for
  // Mode::budget.
  bool keep_8_bits = false;
  // Receives the share of that work that is done, 0 to 1, while an answer is sought. Null: nobody
  // does.
  std::function<void(double share)> on_progress = {};
  std::vector<std::string> collection = {};  // names, for Mode::collection

  // Returns the number to minimise where no time is known, in FLOPs, of what replays do.
  double cost(const OpCost& work) const {
    return work.flops + flops_per_byte * static_cast<double>(work.bytes);
  }
  // Returns the options of a search whose plan a program waits for. ValueError if they ask for
  // values in 8 bits where no plan keeps any.
  AutoRecomputeOptions of_a_run() const;
};
// The options in words, as in the environment and on command lines. `how` is empty, memory, speed,
// evict or collection:NAME,NAME; block, 1 and 0 concern modules and do nothing here. `budget` is
// empty, or like 6GiB. Empty if neither asks for anything; ValueError for other words.
std::optional<AutoRecomputeOptions> parse_recompute(const std::string& how,
                                                    const std::string& budget);

}  // namespace rw
