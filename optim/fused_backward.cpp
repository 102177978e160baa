#include "rewind/optim/fused_backward.h"

#include "rewind/core/autograd/tape.h"
#include "rewind/core/tensor/launch.h"
#include "rewind/optim/gradient_table.h"
#include "rewind/optim/update_rule.h"

namespace rw {

InBackward::InBackward(Optimizer&& optimizer) : Optimizer(std::move(optimizer)) {
  set_up();
}

InBackward::InBackward(std::vector<ParameterGroup> groups, std::unique_ptr<UpdateRule> rule)
    : Optimizer(std::move(groups), std::move(rule)) {
  set_up();
}

void InBackward::set_up() {
  separate_parameters();
  hooks_ = GradientHooks(parameters().slots(), [this](size_t slot, const Tensor& parameter) {
    on_complete(slot, parameter);
  });
}

void InBackward::run(const Tensor& loss, const Tensor& seed, bool retain) {
  is_running_ = true;
  try {
    loss.backward(seed, retain);
  } catch (...) {
    is_running_ = false;
    throw;
  }
  is_running_ = false;
}

// Slots are runs: every parameter has a slab of its own.
void InBackward::on_complete(size_t run, const Tensor& parameter) {
  if (!is_running_) return;
  const OpScope scope("optimizer");
  const PhaseScope phase(Phase::update);
  if (parameter.numel() > 0 && gradients().locate(run)) take(run);
  parameter.impl().grad = {};
}

void InBackward::measure(size_t run) {
  gradients().stats(run);
}

void InBackward::judge(size_t run) {
  prepare(PREPARE_CHECK, 1, gradients().stats(run));
}

void InBackward::conclude(uint32_t part, float weight) {
  prepare(part, weight, gradients().all_stats());
}

FusedBackward::FusedBackward(Optimizer&& optimizer, FusedPasses passes)
    : InBackward(std::move(optimizer)), passes_(passes) {}

void FusedBackward::backward(const Tensor& loss, float weight) {
  check<AutogradError>(!has_run_, "fused_backward",
                       "backward() must run once per step(): it updates the parameters; add the "
                       "losses, or use Accumulate or AdamA");
  check_update();
  const Tensor gradient = seed(loss, weight);
  has_run_ = true;
  has_taken_ = false;
  if (passes_ == FusedPasses::one) {
    pass_ = Pass::both;
    return run(loss, gradient);
  }
  pass_ = Pass::measure;
  run(loss, gradient, /* retain */ true);
  if (has_taken_) begin(PREPARE_ALL);
  pass_ = Pass::update;
  run(loss, gradient);
}

// Decides about the update.
void FusedBackward::begin(uint32_t part) {
  const OpScope scope("optimizer");
  const PhaseScope phase(Phase::update);
  follow_parameters();
  conclude(part);
}

void FusedBackward::take(size_t run) {
  if (!std::exchange(has_taken_, true)) {
    gradients().clear_stats();
    if (pass_ == Pass::both) begin(PREPARE_BEGIN);
  }
  if (pass_ == Pass::measure) return measure(run);
  if (pass_ == Pass::both) judge(run);
  update_run(run);
}

bool FusedBackward::step() {
  if (!std::exchange(has_run_, false) || !has_taken_) return false;
  const OpScope scope("optimizer");
  const PhaseScope phase(Phase::update);
  if (pass_ == Pass::both) conclude(PREPARE_END);
  announce_update();
  finish_update();
  return true;
}

}  // namespace rw
