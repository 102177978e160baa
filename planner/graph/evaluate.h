// The simulation of one training step under a recompute plan.
#pragma once

#include "graph.h"
#include "plan.h"

namespace rw {

// The cost and the peak of a plan, in the graph's unit of cost and in bytes.
struct PlanCost {
  double cost = 0;         // of all replays and offloads
  uint64_t peak = 0;       // the most bytes alive at once, without external values
  uint64_t held = 0;       // bytes alive between forward and backward
  uint64_t replayed = 0;   // records run again
  uint64_t offloaded = 0;  // bytes sent to host memory
  uint64_t in_8_bits = 0;  // bytes of the values that were packed

  std::vector<Plan::Offload> offloads;  // those of the plan that somebody held
};

// Simulates one training step under the plan. The gradient of a value lives from its first
// contribution to the vjp of the value's record. ValueError if segments do not nest, or if offloads
// are not in the order in which they happen. It ends as soon as the peak is above `most` bytes.
PlanCost evaluate(const Graph& graph, const Plan& plan, uint64_t most = UINT64_MAX);

// Sets the plan's cost, peak and bytes elsewhere to the result of evaluate(), and leaves out
// offloads of values that nobody holds.
void fill_in(const Graph& graph, Plan& plan, uint64_t most = UINT64_MAX);

}  // namespace rw
