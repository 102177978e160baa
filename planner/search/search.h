// Finds, by dry runs, how a training step should recompute: candidates from the planner
// (planner/graph/plan.h), each measured to the byte before anything is allocated.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "../../core/autograd/checkpoint.h"
#include "../dry_run.h"
#include "../graph/graph.h"
#include "../graph/plan_work.h"
#include "candidate.h"
#include "plans.h"
#include "recompute_options.h"

namespace rw {

// Measures plans for one program, and returns those that fit.
class Search {
 public:
  using OpenDry = std::function<std::unique_ptr<Backend>()>;  // opens the dry backend of a run
  using Program = std::function<void()>;                      // the argument of dry_run()

  // `program` builds its model and takes a few training steps that are alike. It runs twice at
  // once, without recomputation.
  Search(OpenDry open, Program program, const AutoRecomputeOptions& options = {});
  // A search for the same program, which shares with `known` what does not depend on where values
  // are kept. The other options must be equal.
  Search(const Search& known, const AutoRecomputeOptions& options);
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  const Graph& graph() const { return graph_; }      // the forward pass
  const Candidate& plain() const { return plain_; }  // the candidate that recomputes nothing
  // Empty, or how a later pass of the program differs from its first one, which plans are for.
  const std::string& difference() const { return difference_; }
  // Whether answers so far left out plans that more effort would have tried.
  bool is_cut() const { return work_.is_cut || (simpler_ && simpler_->is_cut()); }
  // The work that was done so far, in steps of about a nanosecond, and the limit for one answer.
  uint64_t work() const { return work_.done + (simpler_ ? simpler_->work() : 0); }
  uint64_t work_limit() const { return own_work_limit() + (simpler_ ? simpler_->work_limit() : 0); }
  // The measured candidates that are worth having: peaks fall and costs rise. The first one costs
  // nothing, and the last has the least feasible peak. They are computed on first use. A plan that
  // is found later with a lower peak than all of them is appended, whatever it costs, so that
  // budgets that were answered before keep their answers.
  const std::vector<Candidate>& candidates();

  // Measures more plans in the gap between the two candidates around `bytes`.
  void refine(uint64_t bytes);

  // The cheapest candidate whose peak is at most `bytes`, after measuring more plans in the gap
  // around `bytes`. Since these do not depend on where in the gap it is, a smaller budget never
  // gives a higher peak. Every peak that this search has returned, by any of its functions, is
  // feasible. OutOfMemory names the least feasible bytes.
  Candidate budget(uint64_t bytes);

  // The least peak with every op run at most twice and nothing in host memory or in 8 bits, of all
  // plans that are known.
  Candidate memory();
  Candidate speed();  // keeps the outputs of matrix products, convolutions and the like
  // Keeps the outputs that the policy names (save_ops(...), or any function of op, cost and bytes)
  // and recomputes everything between them, as speed() does. The plain candidate if that does not
  // lower the peak.
  Candidate collection(const SavePolicy& policy);
  // The candidate that the options ask for, with `bytes` in place of their budget. ValueError for
  // Mode::evict, which has no plan.
  Candidate choose(uint64_t bytes);
  // Measures your own plan for graph(); its segments must nest.
  Candidate measured(Plan plan) { return hand_out(measure(std::move(plan))); }

 private:
  void prepare(const Search* known);
  Candidate measure(Plan plan, Graph* record = nullptr);
  double cost(const Candidate& candidate) const;
  uint64_t sure_peak(const Plan& plan) const;
  bool is_beaten(const Plan& plan) const;
  Candidate hand_out(Candidate candidate);
  Graph with_costs(const AutoRecomputeOptions& options) const;
  Plan plan_collection(const SavePolicy& policy) const;
  std::vector<Candidate>::iterator cheapest(uint64_t bytes);
  std::vector<Candidate> best_of(std::vector<Candidate> candidates) const;
  void add(Candidate candidate);
  void join(Candidate candidate);
  const std::vector<Candidate>& memory_candidates();
  Candidate weighed(Candidate candidate) const;
  void report(double share) const;
  uint64_t own_work_limit() const;
  void begin_answer();
  bool has_work_for(size_t graph, uint64_t first);
  int measures(int wanted);

  OpenDry open_;
  Program program_;
  AutoRecomputeOptions options_;
  Graph graph_;
  // Where values may go to the host's memory or to 8 bits, or costs are measured times: a search
  // with none of this, or without times. What it finds counts as well, so that these plans are
  // never worse for it.
  std::shared_ptr<Search> simpler_;
  // The recorded graph with costs by the objective, and where no search is simpler also with costs
  // that weigh memory traffic much more or less: other values are heavy then, so plans cut and keep
  // elsewhere.
  std::vector<StagedGraph> graphs_;
  size_t graphs_in_use_ = 0;  // those for which candidates_ had enough work
  Candidate plain_;
  std::string difference_;
  std::vector<Candidate> memory_candidates_;  // the least peak by plan_memory(), for each graph
  std::vector<Candidate> candidates_;
  // The least peak of the plans that were handed out before candidates_ were made.
  std::optional<Candidate> least_;
  PlanWork work_;
  uint64_t begun_ = 0;         // the work that was done before the current answer
  uint64_t measure_work_ = 0;  // the work of a dry run of the program
  // The bytes that plans do not know: parameters, optimizer states and data.
  uint64_t rest_ = 0;
  // Peaks of candidates for which nothing is left to try between them and the next cheaper one.
  std::set<uint64_t> refined_;
};

}  // namespace rw
