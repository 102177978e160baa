// Recomputation for programs that do not ask for it: every forward pass of this thread, up to its
// backward(), stays within a budget or follows a policy.
//     const AutoRecompute recompute({.budget = parse_bytes("6GiB")});
//     ... the program's training loop ...
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
    budget,  // as little recomputation as stays within the budget
    memory,  // the least peak with every op run at most twice
    speed,   // keeps the outputs of matrix products, convolutions and the like
    // No plan: drops values and makes them again while it runs, to stay within the budget.
    evict,
    collection,  // keeps what `collection` names: ops, or values by checkpoint_name()
  };
  Mode mode = Mode::budget;  // the goal of the plans
  uint64_t budget = 0;       // most bytes of the device's blocks; 0: any number (not for `budget`)
  int candidates = 12;       // plans to measure
  double effort = 1;         // of a plan (SearchOptions::effort)
  bool keep_8_bits = false;  // as in SearchOptions; only for Mode::budget
  std::function<void(double share)> on_progress = {};  // as in SearchOptions
  std::vector<std::string> collection = {};            // names, for Mode::collection
};
// The options in words, as in the environment and on command lines. `how` is empty, memory, speed,
// evict or collection:NAME,NAME; block, 1 and 0 concern modules and do nothing here. `budget` is
// empty, or like 6GiB. Empty if neither asks for anything; ValueError for other words.
std::optional<AutoRecomputeOptions> parse_recompute(const std::string& how,
                                                    const std::string& budget);
// Throws ValueError if the options ask for values in 8 bits where no plan keeps any.
void check_8_bits(const AutoRecomputeOptions& options);
// Returns the candidate for which these options ask a search, with `bytes` in place of their
// budget. Throws OutOfMemory if there is none.
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
// it, unless values are kept in 8 bits.
class [[nodiscard]] AutoRecompute : public Follower {
 public:
  // ValueError if the mode needs a budget and there is none, or does not keep values in 8 bits;
  // AutogradError inside another scope.
  explicit AutoRecompute(AutoRecomputeOptions options);
  ~AutoRecompute() override { end(); }

  // Describes what was done for each of the last 64 kinds of passes: "12 records: planned, 3
  // segments".
  std::vector<std::string> kinds() const;

  bool records_all() const override { return is_open(); }
  void before_record(Tape& tape, const Op& op) override;
  void after_record(const Record& record, std::span<const Tensor> outputs) override;
  void before_backward(Tape& tape, const Tensor& root, const Tensor& gradient,
                       bool retains) override;
  bool give_way() override {
    end();
    return true;
  }

 private:
  // The identity of the kind of a pass: its ops, and the sizes of their first outputs.
  struct Trace {
    std::vector<std::string> ops;
    std::vector<uint64_t> bytes;
    bool operator==(const Trace&) const = default;
  };
  struct Kind {
    Trace trace;
    int passes = 0;
    uint64_t last = 0;              // the number of the last pass of this kind
    int next = -1;                  // the kind that came after it the last time
    std::optional<Plan> plan = {};  // empty before there is one, or if it is not worth one
    int plans = 0;                  // plans that were made or tried
    bool is_cut = false;            // more effort may find a better one
    double cost = 0;                // of the plan's replays
    uint64_t more_work = 0;         // the work of making it again with more effort
    uint64_t live = 0;              // live bytes when the pass for which it was planned began
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
  int expected_ = -1;  // the kind of the next pass; -1: unknown
  int last_ = -1;      // the kind of the previous pass
  int kind_ = -1;      // the kind that the open pass is taken for
  Trace trace_;
  // The pass is of another kind, so it leaves its plan before the next record.
  bool is_another_ = false;
  int64_t first_ = 0;
  uint64_t live_ = 0;    // live bytes when the pass began
  uint64_t newest_ = 0;  // the last storage at that time
  uint64_t least_ = 0;   // the least peak, in bytes, of a pass that no plan fits; 0: all fitted
};

}  // namespace rw
