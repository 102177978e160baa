#include "planner/follow/follower.h"

namespace rw {

PlanFollower::PlanFollower(std::shared_ptr<Tape> tape, bool displaces) : tape_(std::move(tape)) {
  if (!tape_) return;
  const bool is_free = !tape_->follower() || (displaces && tape_->follower()->give_way());
  check<AutogradError>(is_free && !tape_->in_segment(), "recompute",
                       "the scope that sets the segments of passes must be the outermost one");
  outer_ = tape_->exchange_follower(this);
}

PlanFollower::PlanFollower(Plan plan, Graph* record, OpTimes* times)
    : PlanFollower(grad_enabled() ? Tape::current() : nullptr, true) {
  plan_ = std::move(plan);
  record_ = record;
  times_ = times;
}

PlanFollower::~PlanFollower() {
  if (!tape_) return;
  end();
  tape_->exchange_follower(outer_);
}

void PlanFollower::before_record(Tape& tape, const Op& op) {
  if (pass_ && tape.is_empty()) {  // nobody wanted its gradient
    end();
    if (record_) *record_ = {};
  }
  if (!pass_) begin(tape);
  pass_->before_record(tape, op);
}

void PlanFollower::begin(Tape& tape) {
  pass_.emplace(tape, plan_, record_, -1, times_);
}

void PlanFollower::before_backward(Tape&, const Tensor&, const Tensor&, bool) {
  if (!pass_) return;
  end();
  record_ = nullptr;
}

void PlanFollower::end() {
  if (!pass_) return;
  pass_->end();
  difference_ = difference();
  pass_.reset();
}

}  // namespace rw
