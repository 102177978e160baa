// Finds how a training step should recompute, by dry runs: candidates from the planner
// (planner/graph/plan.h), each measured to the byte before anything is allocated.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "../dry_run.h"
#include "../graph/plan_work.h"
#include "recompute.h"

namespace rw {

// A plan, and what it was measured to need.
struct RecomputeChoice {
  Recompute recompute;  // the plan, as passes follow it
  Forecast forecast;    // in choices() not packed: the peak is exact, reserved bytes are not

  uint64_t peak() const { return forecast.memory.peak; }        // most bytes live at once
  OpCost replay() const { return replay_cost(forecast.work); }  // what recomputation costs
};

// What a search minimises.
struct RecomputeObjective {
  double flops_per_byte = 20;  // as OpCost::total(): what moving a byte costs; 0: FLOPs alone count
  int candidates = 24;         // plans to measure, at most
  // Bounds the work of each answer: with 1 it is found in at most 2 seconds for passes of up to
  // 2000 ops, and in at most 20 for any. Counted, not timed: the same program gets the same plans.
  double effort = 1;
  // Is told how much of that work is done, 0 to 1, while an answer is sought; null: nobody is.
  std::function<void(double share)> on_progress = {};

  // The number that is minimised, in FLOPs.
  double operator()(const OpCost& cost) const {
    return cost.flops + flops_per_byte * static_cast<double>(cost.bytes);
  }
};

// Measures plans for one program, and hands out those that fit.
class RecomputeSearch {
 public:
  using OpenDry = std::function<std::unique_ptr<Backend>()>;  // opens the dry backend of a run
  using Program = std::function<void()>;                      // what dry_run() takes

  // `program` builds its model and takes a few training steps that are
  // alike. It is run twice at once, without recomputation.
  RecomputeSearch(OpenDry open, Program program, const RecomputeObjective& objective = {});
  RecomputeSearch(const RecomputeSearch&) = delete;
  RecomputeSearch& operator=(const RecomputeSearch&) = delete;

  const RecordedGraph& recorded() const { return recorded_; }  // the forward pass
  const RecomputeChoice& plain() const { return plain_; }      // nothing is recomputed
  // Empty, or how a later pass of the program differs from its first one, for which plans are.
  const std::string& difference() const { return difference_; }
  // Whether answers so far left plans out that more effort would have tried.
  bool is_cut() const { return work_.is_cut; }
  // Work that was done so far, in steps of about a nanosecond, and what one answer may take.
  uint64_t work() const { return work_.done; }
  uint64_t work_limit() const;
  // Of a choice's replays, by the objective.
  double cost(const RecomputeChoice& choice) const { return objective_(choice.replay()); }
  // The measured candidates that are worth having: peak falls and cost rises. The first one costs
  // nothing; the last has the least feasible peak. Computed when first asked for; a plan that is
  // found later and goes below all of them follows, whatever it costs, so that budgets that were
  // answered before keep their answers.
  const std::vector<RecomputeChoice>& choices();

  // Measures more plans in the gap between two choices that `bytes` falls into.
  void refine(uint64_t bytes);

  // The cheapest choice whose peak is at most `bytes`, after more plans were measured in the gap
  // that `bytes` falls into. Since these do not depend on where in the gap it is, a smaller budget
  // never gives a higher peak. Whatever peak this search has handed out, by any of its functions,
  // is feasible. OutOfMemory naming the least feasible bytes.
  RecomputeChoice budget(uint64_t bytes);

  RecomputeChoice memory();  // least peak with every op run at most twice, of all plans known
  RecomputeChoice speed();   // outputs of matrix products, convolutions and the like are kept
  // Keeps the outputs that the policy names (save_ops(...), any function of op, cost and bytes) and
  // makes everything between them again; as speed() does. The plain choice where that does not
  // lower the peak.
  RecomputeChoice collection(const SavePolicy& policy);

 private:
  RecomputeChoice measure(Recompute recompute, bool pack = false, RecordedGraph* record = nullptr);
  RecomputeChoice measure(const RecomputePlan& plan) { return measure(follow(recorded_, plan)); }
  RecomputeGraph with_costs(const RecomputeObjective& objective) const;
  RecomputePlan plan_collection(const SavePolicy& policy) const;
  std::vector<RecomputeChoice>::iterator cheapest(uint64_t bytes);
  std::vector<RecomputeChoice> best_of(std::vector<RecomputeChoice> choices) const;
  void join(RecomputeChoice choice);
  const std::vector<RecomputeChoice>& memory_choices();
  RecomputeChoice hand_out(const Recompute& recompute);
  void begin_answer();
  bool has_work_for(size_t graph, uint64_t first);
  int measures(int wanted);

  OpenDry open_;
  Program program_;
  RecomputeObjective objective_;
  RecordedGraph recorded_;
  // The recorded one with costs by the objective, and with costs that count memory traffic for much
  // more or less: other values are heavy then, and plans cut and keep elsewhere.
  std::vector<RecomputeGraph> graphs_;
  RecomputeChoice plain_;
  std::string difference_;
  std::vector<RecomputeChoice> memory_choices_;  // the least by plan_memory(), of each graph
  std::vector<RecomputeChoice> choices_;
  std::optional<RecomputeChoice> least_;  // of the plans handed out before choices_ were made
  PlanWork work_;
  uint64_t begun_ = 0;         // work that was done before the answer that is sought
  uint64_t measure_work_ = 0;  // of a dry run of the program
  std::set<uint64_t>
      refined_;  // peaks of the choices between which and the next cheaper nothing is left to try
};

}  // namespace rw
