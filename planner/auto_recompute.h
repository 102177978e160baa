// Recomputation for programs that do not ask for it: every forward pass of this thread, up to its
// backward(), stays within a budget or follows a policy.
//     const AutoRecompute recompute({.budget = parse_bytes("6GiB")});
//     ... the program's training loop ...
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "follow/follower.h"
#include "follow/memory_budget.h"
#include "search/search.h"

namespace rw {

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
class [[nodiscard]] AutoRecompute : public PlanFollower {
 public:
  // ValueError if the mode needs a budget and there is none, or does not keep values in 8 bits;
  // AutogradError inside another scope.
  explicit AutoRecompute(AutoRecomputeOptions options);
  ~AutoRecompute() override;

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
  struct Kind;  // of passes

  void begin(Tape& tape) override;
  int kind_of_pass();
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
  // By record of the open pass, its op and the bytes of its first output.
  std::vector<std::string> ops_;
  std::vector<uint64_t> bytes_;
  // The pass is of another kind, so it leaves its plan before the next record.
  bool is_another_ = false;
  int64_t first_ = 0;
  uint64_t live_ = 0;    // live bytes when the pass began
  uint64_t newest_ = 0;  // the last storage at that time
  uint64_t least_ = 0;   // the least peak, in bytes, of a pass that no plan fits; 0: all fitted
};

}  // namespace rw
