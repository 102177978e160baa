#include "optim/accumulation/fused_backward.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/autograd/tape.h"
#include "core/tensor/launch.h"
#include "optim/base/gradient_table.h"
#include "optim/base/update_control.h"
#include "optim/base/update_rule.h"

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
  hooks_.emplace(parameters().slots(),
                 [this](size_t slot, const Tensor& parameter) { on_complete(slot, parameter); });
}

void InBackward::run(const Tensor& loss, const Tensor& seed, bool retain) {
  is_running_ = true;
  taken_.clear();
  try {
    loss.backward(seed, retain);
  } catch (const OutOfMemory& error) {
    abandon();
    throw OutOfMemory(fmt::format(
        "{}\nBy then backward() had used the gradients of {} of {} parameters, and what they "
        "changed stays: [{}]. The next backward() begins anew.",
        error.what(), taken_.size(), parameters().slots().size(), fmt::join(taken(), ", ")));
  } catch (...) {
    abandon();
    throw;
  }
  is_running_ = false;
}

void InBackward::abandon() {
  is_running_ = false;
  Optimizer::zero_grad();  // sums that were not complete
  end_failed();
}

std::vector<std::string> InBackward::taken() const {
  std::vector<std::string> names;
  for (const size_t run : taken_) names.push_back(parameters().slots()[run].name);
  return names;
}

void InBackward::count_missed(const std::vector<bool>& updated) {
  if (std::ranges::find(updated, false) == updated.end()) return;
  gradients().set_stats(updated);
  update_control().count_missed(gradients().all_stats());
}

// Slots are runs, as every parameter has a slab of its own.
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
  update_control().prepare(PREPARE_CHECK, 1, gradients().stats(run));
}

void InBackward::conclude(uint32_t part, float weight) {
  update_control().prepare(part, weight, gradients().all_stats());
}

FusedBackward::FusedBackward(Optimizer&& optimizer, FusedPasses passes)
    : InBackward(std::move(optimizer)), passes_(passes) {}

void FusedBackward::backward(const Tensor& loss, float weight) {
  check<AutogradError>(!has_run_, "fused_backward",
                       "backward() must run once per step(): it updates the parameters; add the "
                       "losses, or use Accumulate or AdamA");
  check_update();
  const Tensor gradient = update_control().seed(loss, weight);
  has_taken_ = false;
  pass_ = Pass::both;
  if (passes_ == FusedPasses::two) {
    pass_ = Pass::measure;
    run(loss, gradient, /* retain */ true);
    if (has_taken_) begin(PREPARE_ALL);
    pass_ = Pass::update;
  }
  has_run_ = true;
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
  if (!has_taken_) {
    gradients().clear_stats();
    if (pass_ == Pass::both) begin(PREPARE_BEGIN);
    has_taken_ = true;
  }
  if (pass_ == Pass::measure) return measure(run);
  note(run);
  if (pass_ == Pass::both) judge(run);
  update_run(run);
}

bool FusedBackward::step() {
  if (!std::exchange(has_run_, false) || !has_taken_) return false;
  const OpScope scope("optimizer");
  const PhaseScope phase(Phase::update);
  if (pass_ == Pass::both) conclude(PREPARE_END);
  std::vector<bool> updated(parameters().slots().size());
  for (const size_t run : taken_runs()) updated[run] = true;
  count_missed(updated);
  announce_update();
  finish_update();
  return true;
}

}  // namespace rw
