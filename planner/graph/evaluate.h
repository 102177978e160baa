// The simulation of one training step under a recompute plan.
#pragma once

#include "graph.h"
#include "plan.h"

namespace rw {

// The cost and the peak of a plan, in the graph's unit of cost and in bytes.
struct PlanCost {
  double cost = 0;        // of all replays
  uint64_t peak = 0;      // the most bytes alive at once, without external values
  uint64_t held = 0;      // bytes alive between forward and backward
  uint64_t replayed = 0;  // records run again
};

// Simulates one training step under the plan. The gradient of a value lives from its first
// contribution to the vjp of the value's record. ValueError if segments do not nest.
PlanCost evaluate(const Graph& graph, const Plan& plan);

// Sets the plan's cost and peak to the result of evaluate().
void fill_in(const Graph& graph, Plan& plan);

}  // namespace rw
