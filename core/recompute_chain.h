// The dynamic programme behind plan_budgets and plan_memory: a range of records cut into stages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/recompute_graph.h"
#include "core/recompute_plan.h"
#include "core/recompute_range.h"

namespace rw {

// At most `limit` stages: positions first = p[0] < ... < p[n] = last, where few bytes cross and the
// stages between weigh about the same. Chains are cut at articulation points, U-Nets where the
// fewest skips cross, anything else wherever it is cheapest.
std::vector<uint32_t> cut_into_stages(const RecomputeGraph& graph,
                                      const std::vector<ValueUse>& uses, uint32_t first,
                                      uint32_t last, uint32_t limit);

// Bytes and costs of the stages between `positions`. A value crosses cut j if it is made before
// positions[j] and read after. What crosses the first cut is at hand and costs nothing.
struct Stages {
  Stages(const RecomputeGraph& graph, const std::vector<ValueUse>& uses,
         std::vector<uint32_t> positions);

  uint32_t count() const { return static_cast<uint32_t>(positions.size()) - 1; }
  // Bytes that cross cut j and not cut s < j: what a child segment [s, j) must leave behind.
  uint64_t crossing(uint32_t s, uint32_t j) const { return crossing_all[s * (count() + 1) + j]; }
  // Those of them that plain records after j hold.
  uint64_t crossing_held(uint32_t s, uint32_t j) const {
    return crossing_saved[s * (count() + 1) + j];
  }
  // Ways to run [s, j) as one segment that keeps some of its values, for j up to s + longest_kept;
  // after add_keep_options().
  const std::vector<KeepOption>& keep_options(uint32_t s, uint32_t j) const {
    static const std::vector<KeepOption> none;
    return s < kept.size() && j - s <= kept[s].size() ? kept[s][j - s - 1] : none;
  }
  void add_keep_options(const RecomputeGraph& graph, const std::vector<ValueUse>& uses);

  // Most bytes alive while [s, j) runs and drops everything.
  uint64_t sweep_peak(uint32_t s, uint32_t j) const { return sweep_peaks[s * (count() + 1) + j]; }

  struct Stage {
    uint64_t saved = 0;          // bytes that stay when it runs as plain records
    uint64_t dropped = 0;        // bytes that cross into it and that only a child segment holds
    uint64_t forward_peak = 0;   // bytes alive while it runs, over what was alive before
    uint64_t drop_peak = 0;      // the same if it drops everything
    uint64_t backward_peak = 0;  // bytes alive in its backward, its saved values and gradients
    uint64_t gradients = 0;      // bytes of gradients that cross its end, and of leaves behind it
    double sweep = 0;            // cost of making what crosses its end
    double replay = 0;           // ... and its saved values
    double tail = 0;             // of its saved values only: a segment that follows holds the rest
    double unaided_tail = 0;     // ... if plain records follow, which hold nothing for it
    std::vector<uint32_t> crossing_gradients;  // values that they are of
  };
  std::vector<uint32_t> positions;
  std::vector<Stage> stages;

 private:
  class Builder;
  std::vector<std::vector<std::vector<KeepOption>>> kept;  // [s][j - s - 1]
  std::vector<uint64_t> crossing_all, crossing_saved, sweep_peaks;
};

// Cheapest persistent schedules of a range of stages for every memory size up to `slots` units.
// Notation of Beaumont et al. 2019: a problem (s, t, m) is the backward of stages [s, t) in m
// units, with what crosses cut s at hand. It starts with a child segment [s, j), or with stage s as
// plain records. Two tables: in `child` the first is a child segment and what crosses s is paid
// for; in `plain` only what is saved anyway is.
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
    uint32_t need = 0;        // units without which it cannot run
    uint32_t hold_plain = 0;  // units that are gone for the rest if that begins plainly
    uint32_t hold_child = 0;  // ... with a child segment: no less
    float cost = 0;
    float extra_plain = 0;  // if the rest begins plainly
  };
  static constexpr float infeasible = 1e30f;  // or more: costs are added to it
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
