// Recomputation without marks in the model: forward passes of this thread follow a plan.
//   const Plan plan = search.budget(bytes).plan;  // planner/search/search.h
//   const auto follower = checkpoint(plan);
//   for (...) { loss = model(x); loss.backward(); ... }
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "../../core/autograd/checkpoint.h"
#include "forward_pass.h"

namespace rw {

// While it lives, the forward passes of this thread follow a plan. A pass lasts from its first op
// that needs a gradient to its backward(), to the point where all of it has been dropped, or to the
// end of the scope. A follower may surround one pass or a whole training loop. Marks in models
// (CheckpointScope) are ignored.
class [[nodiscard]] PlanFollower : public Tape::Follower {
 public:
  // `record` receives the graph of the first pass and outlives the scope, or is null. `times`
  // measures the ops of that graph; if null, only their work is known. It replaces a follower that
  // makes plans (AutoRecompute). AutogradError inside a segment or another plan's follower; under
  // NoGrad it does nothing.
  explicit PlanFollower(Plan plan, Graph* record = nullptr, OpTimes* times = nullptr);
  ~PlanFollower() override;
  PlanFollower(const PlanFollower&) = delete;
  PlanFollower& operator=(const PlanFollower&) = delete;

  // If nothing is replayed or recorded, the pass runs like a plain one. Otherwise an op without a
  // gradient that is on the tape keeps the values that its inputs' records save.
  bool records_all() const override {
    const bool wants = record_ || plan_.evicts || !plan_.is_plain();
    return wants && is_open();
  }
  void before_record(Tape& tape, const Op& op) override;
  void after_record(const Record& record, std::span<const Tensor> outputs) override {
    pass_->after_record(record, outputs);
  }
  uint32_t kept_outputs() const override { return pass_->kept_outputs(); }
  void before_backward(Tape& tape, const Tensor& root, const Tensor& gradient,
                       bool retains) override;

  // Whether a pass departed from its plan; difference() says what the first such pass did instead.
  bool diverged() const { return !difference().empty(); }
  const std::string& difference() const {
    return pass_ && difference_.empty() ? pass_->difference() : difference_;
  }

 protected:
  // Becomes the tape's follower; with `displaces`, in place of another one that gives way.
  PlanFollower(std::shared_ptr<Tape> tape, bool displaces);
  virtual void begin(Tape& tape);
  void end();
  // There is a pass, and not all of it has been dropped.
  bool is_open() const { return pass_ && !tape_->is_empty(); }

  std::shared_ptr<Tape> tape_;       // the tape that it follows; null under NoGrad
  Plan plan_;                        // of the pass that is open or comes next
  std::optional<ForwardPass> pass_;  // the open pass

 private:
  // Receives the graph of the first pass that runs backward; null: it is recorded already.
  Graph* record_ = nullptr;
  OpTimes* times_ = nullptr;
  Tape::Follower* outer_ = nullptr;
  std::string difference_;
};

// A scope that recomputes by the plan.
inline PlanFollower checkpoint(Plan plan) {
  return PlanFollower(std::move(plan));
}

}  // namespace rw
