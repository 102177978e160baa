// Automatic recomputation: which ranges of a recorded forward pass to drop and replay in backward.
//
// A plan is a forest of segments. Values made inside a segment are dropped in forward, unless
// somebody after the segment reads them or the plan keeps them. When backward reaches a record of a
// segment whose vjp reads a saved value, the segment is replayed: only the records that make saved
// values of its own records, or what its child segments read from outside themselves. Child
// segments stay dropped until backward reaches them. This is what core/replay.cpp does; nested
// segments are the persistent schedules of Beaumont et al. 2019.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "core/recompute_graph.h"

namespace rw {

struct RecomputePlan {
  struct Segment {
    uint32_t first = 0, last = 0;  // records [first, last)
    int32_t parent = -1;           // index of the enclosing segment
  };
  std::vector<Segment> segments;  // in forward order, parents before children
  std::vector<uint32_t> keep;     // values made inside segments that are not dropped
  double cost = 0;                // extra forward cost, in the graph's unit
  uint64_t peak = 0;              // bytes of activations and their gradients
};

struct PlanCost {
  double cost = 0;        // of all replays
  uint64_t peak = 0;      // most bytes alive at once, external values not counted
  uint64_t held = 0;      // bytes alive between forward and backward
  uint64_t replayed = 0;  // records run again
};

// Simulates one training step under the plan. The gradient of a value lives from its first
// contribution to the vjp of the value's record. ValueError if segments do not nest.
PlanCost evaluate(const RecomputeGraph& graph, const RecomputePlan& plan);

// Sets the plan's cost and peak to what evaluate() says.
void fill_in(const RecomputeGraph& graph, RecomputePlan& plan);

// Plans from fast (nothing replayed) to small (deep nests of segments), cost strictly rising and
// peak strictly falling, at most `count` of them. Dynamic programme over the stages of a chain with
// discretised memory (Beaumont et al. 2019, "Optimal checkpointing for heterogeneous chains");
// dropping cheap values first is the insight of Jain et al. 2020 (Checkmate).
std::vector<RecomputePlan> plan_budgets(const RecomputeGraph& graph, int count = 16);

// The cheapest plan found whose peak is at most `bytes`; none if there is no such plan.
std::optional<RecomputePlan> plan_budget(const RecomputeGraph& graph, uint64_t bytes);

// The same for budgets of about the same size, with one dynamic programme for all of them.
std::vector<std::optional<RecomputePlan>> plan_each_budget(const RecomputeGraph& graph,
                                                           std::span<const uint64_t> budgets);

// The least peak among plans without nesting: every record runs at most twice, memory grows with
// the square root of the depth (Chen et al. 2016, with measured bytes instead of op counts).
RecomputePlan plan_memory(const RecomputeGraph& graph);

// Keeps the outputs of heavy records (matmul, convolution) and replays everything between them, in
// segments small enough that a replay brings back little at a time, where that drops more bytes
// than it has to hold.
RecomputePlan plan_speed(const RecomputeGraph& graph,
                         const std::function<bool(uint32_t record)>& is_heavy);

// Records [0, records) halved again and again down to `leaf` records: memory grows with the
// logarithm of the depth, every level costs one more forward (Griewank & Walther 2000 is the
// optimum for uniform chains). Cost and peak are not filled in.
RecomputePlan nested_halving(uint32_t records, uint32_t leaf);

}  // namespace rw
