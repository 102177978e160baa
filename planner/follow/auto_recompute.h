// Recomputation for programs that say nothing of it: every forward pass of this thread, up to its
// backward(), keeps within a budget or to a policy.
//   const AutoRecompute recompute({.budget = parse_bytes("6GiB")});
//   ... the program's training loop ...
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "follower.h"
#include "memory_budget.h"
#include "search.h"

namespace rw {

// The options of AutoRecompute.
struct AutoRecomputeOptions {
  // The goal of a plan.
  enum class Mode {
    budget,      // as little as keeps within the budget
    memory,      // the least peak with every op run at most twice
    speed,       // outputs of matrix products, convolutions and the like are kept
    evict,       // no plan: drops and makes again while it runs, to keep within the budget
    collection,  // what `collection` names is kept: ops, or values by checkpoint_name()
  };
  Mode mode = Mode::budget;  // what the plans aim at
  uint64_t budget = 0;       // most bytes of the device's blocks; 0: any number (not for `budget`)
  int candidates = 12;       // plans to measure
  double effort = 1;         // of a plan, and
  std::function<void(double share)> on_progress = {};  // who is told of it: as SearchOptions
  std::vector<std::string> collection = {};            // names, for Mode::collection
};
// The options in words, as in the environment and on command lines. `how` is empty, memory, speed,
// evict or collection:NAME,NAME; block, 1 and 0 concern modules and do nothing here. `budget` is
// empty, or like 6GiB. Empty if neither asks for anything; ValueError for other words.
std::optional<AutoRecomputeOptions> parse_recompute(const std::string& how,
                                                    const std::string& budget);
// The candidate that these options ask a search for, with `bytes` in place of their budget.
// OutOfMemory if there is none.
Candidate choose(Search& search, const AutoRecomputeOptions& options, uint64_t bytes);

// While it lives, forward passes of this thread's tape are recorded under plans of their own. The
// plan for a kind of pass (its ops in order, and with a budget also their sizes) is made from a
// pass of that kind, before its backward. With a budget that is the second pass, when optimizers
// have their state, or the first one if eviction would not get it through its backward, which then
// follows the plan. Passes without a plan, and those that turn out to be of another kind, keep
// everything or, with a budget, are evicted. The budget bounds what is reserved at any time:
// OutOfMemory if an op needs more. If a plan's effort left better plans out, it is made again with
// more effort, and replaced by a cheaper one, once the passes have run long enough that planning
// stays a tenth of the run. Marks in models are ignored. Gradients are bit-equal to those without
// it.
class [[nodiscard]] AutoRecompute : public Follower {
 public:
  // ValueError if the mode needs a budget and there is none; AutogradError inside another scope.
  explicit AutoRecompute(AutoRecomputeOptions options);
  ~AutoRecompute() override { end(); }

  // Describes what was done for each of the last 64 kinds of passes: "12 records: planned, 3
  // segments".
  std::vector<std::string> kinds() const;

  bool records_all() const override { return is_open(); }
  void before_record(Tape& tape, const Op& op) override;
  void after_record(const Record& record) override;
  void before_backward(Tape& tape, const Tensor& root, const Tensor& gradient,
                       bool retains) override;
  bool give_way() override {
    end();
    return true;
  }

 private:
  // The trace of a pass: its ops, and the sizes of their first outputs.
  struct Trace {
    std::vector<std::string> ops;
    std::vector<uint64_t> bytes;
    bool operator==(const Trace&) const = default;
  };
  struct Kind {
    Trace trace;
    int passes = 0;
    uint64_t last = 0;              // number of the pass that was of this kind last
    int next = -1;                  // the kind that came after it last
    std::optional<Plan> plan = {};  // none yet, or it is not worth one
    int plans = 0;                  // that were made, or tried
    bool is_cut = false;            // more effort may find a better one
    double cost = 0;                // of the plan's replays
    uint64_t more_work = 0;         // what making it again with more effort takes
    uint64_t live = 0;              // bytes, when the pass that was planned for began
    std::string fault = "";         // why there is no plan
  };

  void begin(Tape& tape) override;
  int kind_of_trace();
  void make_plan(const Tape& tape, const Tensor& root, bool holds_gradient, Kind& kind,
                 double effort);
  void follow_from_here(Tape& tape, const Plan& plan);
  bool is_worth_more(const Kind& kind) const;
  bool has_budget() const { return options_.budget > 0; }

  const AutoRecomputeOptions options_;
  std::optional<MemoryBudget> budget_;
  std::vector<Kind> kinds_;
  uint64_t passes_ = 0;
  int expected_ = -1;  // kind of the next pass, -1: none
  int last_ = -1;      // kind of the pass before
  int kind_ = -1;      // that the open pass is taken for
  Trace trace_;
  bool is_another_ = false;  // kind: the plan is left before the next record
  int64_t first_ = 0;
  uint64_t live_ = 0;    // bytes when it began, and
  uint64_t newest_ = 0;  // the last storage then
  uint64_t least_ = 0;   // the least peak of a pass that no plan fits, in bytes; 0: all fitted
};

}  // namespace rw
