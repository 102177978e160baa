// The dynamic programme behind plan_budgets and plan_memory: a range of records cut into stages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "rewind/core/recompute/graph.h"
#include "rewind/core/recompute/plan.h"
#include "rewind/core/recompute/stages.h"

namespace rw {

// Cheapest persistent schedules of a range of stages for every memory size up to `slots` units.
// Notation of Beaumont et al. 2019: a problem (s, t, m) is the backward of stages [s, t) in m
// units, while the values that cross cut s are in memory. It starts with a child segment [s, j), or
// with stage s as plain records. There are two tables. `child` has the costs if the problem starts
// with a child segment: then all values that cross cut s count as its memory. `plain` has the costs
// if it starts with plain records: then only those values count that a vjp saves anyway.
class ChainPlanner {
 public:
  struct Options {
    uint64_t unit = 1;  // bytes of a slot
    uint32_t slots = 256;
    double cost_unit = 1;      // costs are kept in this unit
    bool whole = true;         // the range is the whole forward: its first run is free
    bool nested = true;        // child segments may have child segments
    uint32_t inner_limit = 0;  // stages inside a stage; 0: a stage is not divided
  };

  ChainPlanner(const RecomputeGraph& graph, const std::vector<ValueUse>& uses,
               std::shared_ptr<const Stages> stages, const Options& options);

  // Extra cost in `slots` units of memory.
  float cost(uint32_t slots) const { return best_[offset(0, stages_->count()) + slots]; }
  bool is_feasible(uint32_t slots) const { return cost(slots) < infeasible; }
  uint64_t unit() const { return options_.unit; }
  // Segments and kept values of the plan in `slots` units, appended below `parent`.
  void append_plan(uint32_t slots, int32_t parent, RecomputePlan& plan);

 private:
  // One way to begin a problem (s, t): stages [s, next) as a child segment or stage s as plain
  // records, then problem (next, t).
  struct Step {
    bool child = false;
    const KeepOption* keeps = nullptr;  // what the child segment keeps; it has no children then
    uint32_t next = 0;
    // The first part needs `need` units to run at all. While the rest, problem (next, t), runs, the
    // first part holds `hold_plain` units if the rest starts with plain records, and `hold_child`
    // units, which are at least as many, if it starts with a child segment.
    uint32_t need = 0;
    uint32_t hold_plain = 0;
    uint32_t hold_child = 0;
    float cost = 0;
    float extra_plain = 0;  // added to the cost if the rest starts with plain records
  };
  static constexpr float infeasible = 1e30f;  // costs may be added to it: compare with >=
  using Table = std::vector<float>;           // [problem][slots + 1]

  size_t offset(uint32_t s, uint32_t t) const {
    return (size_t{t} * (t - 1) / 2 + s) * (options_.slots + 1);
  }
  bool is_free(uint32_t t) const { return options_.whole && t == stages_->count(); }
  uint32_t units(uint64_t bytes) const {
    return static_cast<uint32_t>(
        std::min<uint64_t>((bytes + options_.unit / 2) / options_.unit, options_.slots + 1));
  }

  void divide_stages();
  void solve(uint32_t s, uint32_t t);
  void add_plain_steps(uint32_t s, uint32_t t);
  void add_child_steps(uint32_t s, uint32_t t);
  void add_keep_steps(uint32_t s, uint32_t j, Step step);
  void relax(const Step& step, uint32_t s, uint32_t t);
  float child_rest(const Step& step, uint32_t t, uint32_t m) const;
  float plain_rest(const Step& step, uint32_t t, uint32_t m) const;
  float cost_of(const Step& step, uint32_t s, uint32_t t, uint32_t m) const;
  void walk(uint32_t s, uint32_t t, uint32_t m, int32_t parent, RecomputePlan& plan);

  const RecomputeGraph& graph_;
  const std::vector<ValueUse>& uses_;
  Options options_;
  std::shared_ptr<const Stages> stages_;
  std::vector<uint32_t> saved_units_;                 // by stage
  Table child_, plain_, best_;                        // best: the lesser of the two
  std::vector<std::unique_ptr<ChainPlanner>> inner_;  // by stage, of its records
  Table zeros_;
  std::vector<Step> steps_;  // of the problem at hand
};

}  // namespace rw
