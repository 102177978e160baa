// Plans of automatic recomputation for a recorded forward pass.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "../graph/graph.h"
#include "../graph/plan.h"
#include "../graph/plan_work.h"

namespace rw {

class StageLevels;

// A graph, and what all planning for it shares. Only one thread may use it.
class StagedGraph {
 public:
  StagedGraph(Graph graph) : graph_(std::move(graph)) {}

  const Graph& graph() const { return graph_; }  // as it was given
  // Measures the graph in at most so many stages, which counts as work, or returns what is known of
  // them.
  std::shared_ptr<const StageLevels> stages(uint32_t limit, PlanWork& work) const;
  // The work of the largest dynamic programme so far; the next one may take as much.
  uint64_t& programme() const { return programme_; }

 private:
  Graph graph_;
  mutable std::map<uint32_t, std::shared_ptr<const StageLevels>> stages_;  // by limit
  mutable uint64_t programme_ = 0;
};

// Returns at most `count` plans from fast (nothing replayed) to small (deep nests of segments),
// with cost strictly rising and peak strictly falling. A dynamic programme over the stages of a
// chain with discretised memory finds them (Beaumont et al. 2019, "Optimal checkpointing for
// heterogeneous chains"); dropping cheap values first is the insight of Jain et al. 2020
// (Checkmate). `work`, here and below, counts the work and bounds how fine the programme is, unless
// it is null.
std::vector<Plan> plan_budgets(const StagedGraph& staged, int count = 16, PlanWork* work = nullptr);

// Returns the cheapest plan found whose peak is at most `bytes`, if there is one.
std::optional<Plan> plan_budget(const StagedGraph& staged, uint64_t bytes);

// The same for several budgets of about the same size, with one dynamic programme for all of them.
std::vector<std::optional<Plan>> plan_each_budget(const StagedGraph& staged,
                                                  std::span<const uint64_t> budgets,
                                                  PlanWork* work = nullptr);

// Returns the plan with the least peak and without nesting: every record runs at most twice, and
// memory grows with the square root of the depth (Chen et al. 2016, with measured bytes instead of
// op counts).
Plan plan_memory(const StagedGraph& staged, PlanWork* work = nullptr);

// Halves records [0, records) again and again down to `leaf` records: memory grows with the
// logarithm of the depth, and every level costs one more forward (Griewank & Walther 2000 is the
// optimum for uniform chains). Cost and peak are not filled in.
Plan nested_halving(uint32_t records, uint32_t leaf);

}  // namespace rw
