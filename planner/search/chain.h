// The dynamic programme behind plan_budgets and plan_memory: a range of records cut into stages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "../graph/graph.h"
#include "../graph/plan.h"
#include "../graph/stages.h"
#include "../graph/tuning.h"
#include "cost_rows.h"

namespace rw {

// Cheapest persistent schedules of a range of stages for every memory size up to `slots` units.
// Notation of Beaumont et al. 2019: a problem (s, t, m) is the backward of stages [s, t) in m
// units, while the values that cross cut s are in memory. It starts with a child segment [s, j), or
// with stage s as plain records. There are two tables. `child` has the costs if the problem starts
// with a child segment: then all values that cross cut s count as its memory. `plain` has the costs
// if it starts with plain records: then only those values count that a vjp saves anyway.
//
// A segment may keep some of the values made in it, from the forward pass on or from the replay
// that runs into it: one of a few sets of dear values, the levels. The problems inside such a
// segment have tables of their own, with what is kept at hand.
//
// What the first part of a forward pass holds while the rest runs may lie in host memory meanwhile:
// then the part costs as much as these copies, and the rest has all of the memory. What plain
// records save may be kept in 8 bits, which costs two passes over it and leaves a part of its
// memory.
class ChainPlanner {
 public:
  struct Options {
    uint64_t unit = 1;  // bytes of a slot
    uint32_t slots = 256;
    double cost_unit = 1;      // costs are kept in this unit
    bool whole = true;         // the range is the whole forward pass, whose first run is free
    bool nested = true;        // child segments may have child segments
    bool keeps = true;         // segments may keep some of their values
    uint32_t inner_limit = 0;  // stages inside a stage; 0: a stage is not divided
    uint32_t longest = tuning::longest_keeping;  // the most stages of a segment that keeps values
  };

  ChainPlanner(const Graph& graph, const std::vector<ValueUse>& uses,
               std::shared_ptr<const StageLevels> stages, const Options& options);
  ~ChainPlanner();
  ChainPlanner(ChainPlanner&&) noexcept;

  // The extra cost in `slots` units of memory.
  float cost(uint32_t slots) const;
  bool is_feasible(uint32_t slots) const { return cost(slots) < infeasible_cost; }
  uint64_t unit() const { return options_.unit; }
  // The number of costs that were computed; the programme's time is proportional to it.
  uint64_t work() const { return work_; }
  // Segments and kept values of the plan in `slots` units, appended below `parent`.
  void append_plan(uint32_t slots, int32_t parent, Plan& plan);

 private:
  struct Step;     // one way to begin a problem
  struct Segment;  // a child segment of a problem
  struct Problem;
  struct Level;  // the problems in which the same values are kept

  uint32_t count() const { return (*stages_)[0].count(); }
  uint32_t levels() const { return options_.keeps ? stages_->size() : 1; }
  static const Problem& problem(const Level& level, uint32_t s, uint32_t t);
  static const CostRow& best(const Level& level, uint32_t s, uint32_t t);
  bool is_free(uint32_t t) const { return options_.whole && t == count(); }
  uint32_t units(uint64_t bytes) const {
    return static_cast<uint32_t>(
        std::min<uint64_t>((bytes + options_.unit / 2) / options_.unit, options_.slots + 1));
  }

  void add_level(const Stages& stages, uint32_t longest);
  std::vector<Segment> segments(const Level& level, uint32_t inner, uint32_t s) const;
  void divide_stages();
  void solve(Level& level, uint32_t s, uint32_t t);
  void add_plain_steps(const Level& level, uint32_t s, uint32_t t);
  void add_quantizing_step(const Level& level, uint32_t s, uint32_t t, Step step);
  void add_child_steps(const Level& level, uint32_t s, uint32_t t);
  void add_segment_steps(const Level& level, uint32_t inner, uint32_t s, uint32_t t);
  void add_keep_steps(uint32_t s, uint32_t j, Step step);
  void add_offloading_steps();
  Step cheapest_step(const Level& level, bool child, uint32_t s, uint32_t t, uint32_t m);
  void relax(const Level& level, const Step& step, uint32_t s, uint32_t t);
  const CostRow& inside(const Step& step, uint32_t s) const;
  float child_rest(const Level& level, const Step& step, uint32_t t, uint32_t m) const;
  float plain_rest(const Level& level, const Step& step, uint32_t t, uint32_t m) const;
  float cost_of(const Level& level, const Step& step, uint32_t s, uint32_t t, uint32_t m) const;
  void walk(uint32_t level, uint32_t s, uint32_t t, uint32_t m, int32_t parent, Plan& plan);
  void keep(const Level& level, const Step& step, uint32_t s, int32_t replay, Plan& plan) const;
  void offload(const Step& step, uint32_t s, Plan& plan) const;

  const Graph& graph_;
  const std::vector<ValueUse>& uses_;
  Options options_;
  std::shared_ptr<const StageLevels> stages_;
  std::vector<Level> levels_;
  std::vector<std::unique_ptr<ChainPlanner>> inner_;  // by stage, planners of its records
  CostStore store_;
  CostDraft child_, plain_;  // of the current problem
  std::vector<Step> steps_;  // its steps
  uint64_t work_ = 0;        // the work so far
};

}  // namespace rw
