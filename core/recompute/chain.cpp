#include "rewind/core/recompute/chain.h"

#include "rewind/core/recompute/cuts.h"

namespace rw {

ChainPlanner::ChainPlanner(const RecomputeGraph& graph, const std::vector<ValueUse>& uses,
                           std::shared_ptr<const Stages> stages, const Options& options)
    : graph_(graph), uses_(uses), options_(options), stages_(std::move(stages)) {
  const uint32_t n = stages_->count();
  uint64_t sum = 0;  // what one rounding leaves goes into the next: small stages add up
  for (const Stages::Stage& stage : stages_->stages) {
    sum += stage.saved;
    saved_units_.push_back(units(sum));
    sum -= std::min(sum, uint64_t{saved_units_.back()} * options_.unit);
  }
  const size_t size = offset(0, n + 1);
  for (Table* table : {&child_, &plain_, &best_}) table->assign(size, infeasible);
  zeros_.resize(options_.slots + 1);
  if (options_.inner_limit > 1) divide_stages();
  for (uint32_t t = 1; t <= n; ++t)
    for (uint32_t s = t; s-- > 0;) solve(s, t);
}

// A planner for each stage of several records: its costs stand for the stage where nothing follows.
void ChainPlanner::divide_stages() {
  Options options = options_;
  options.inner_limit = 0;
  inner_.resize(stages_->count());
  for (uint32_t i = 0; i < stages_->count(); ++i) {
    const uint32_t first = stages_->positions[i], last = stages_->positions[i + 1];
    if (last - first < 2) continue;
    options.whole = is_free(i + 1);
    auto stages = std::make_shared<const Stages>(
        graph_, uses_, cut_into_stages(graph_, uses_, first, last, options_.inner_limit));
    inner_[i] = std::make_unique<ChainPlanner>(graph_, uses_, std::move(stages), options);
    for (uint32_t m = 0; m <= options_.slots; ++m)
      child_[offset(i, i + 1) + m] = inner_[i]->cost(m);
  }
}

void ChainPlanner::solve(uint32_t s, uint32_t t) {
  steps_.clear();
  if (options_.nested || t == stages_->count()) add_child_steps(s, t);
  add_plain_steps(s, t);
  for (const Step& step : steps_) relax(step, s, t);
  const size_t at = offset(s, t);
  for (uint32_t m = 0; m <= options_.slots; ++m)
    best_[at + m] = std::min(child_[at + m], plain_[at + m]);
}

void ChainPlanner::add_plain_steps(uint32_t s, uint32_t t) {
  const Stages::Stage& stage = stages_->stages[s];
  const uint64_t gradients = is_free(t) ? 0 : stages_->stages[t - 1].gradients;
  Step step;
  step.next = s + 1;
  step.need = units(std::max(stage.backward_peak, stage.forward_peak + gradients));
  step.hold_plain = step.hold_child = saved_units_[s];
  if (step.next < t) step.hold_child += units(stages_->stages[s + 1].dropped);
  const double cost = is_free(t) ? 0 : step.next == t ? stage.tail : stage.replay;
  step.cost = static_cast<float>(cost / options_.cost_unit);
  steps_.push_back(step);
}

void ChainPlanner::add_child_steps(uint32_t s, uint32_t t) {
  const uint64_t gradients = is_free(t) ? 0 : stages_->stages[t - 1].gradients;
  double sweep = 0;
  for (uint32_t j = s + 1; j < t; ++j) {
    if (!is_free(t)) sweep += stages_->stages[j - 1].sweep / options_.cost_unit;
    Step step;
    step.child = true;
    step.next = j;
    step.need = units(stages_->sweep_peak(s, j) + gradients);
    step.hold_plain = units(stages_->crossing_held(s, j));
    step.hold_child = units(stages_->crossing(s, j));
    step.cost = static_cast<float>(sweep);
    const Stages::Stage& end = stages_->stages[j - 1];
    step.extra_plain = static_cast<float>((end.unaided_tail - end.tail) / options_.cost_unit);
    steps_.push_back(step);
    // Kept means from forward on: not for segments that only a replay runs into.
    if (is_free(t)) add_keep_steps(s, j, step);
  }
}

void ChainPlanner::add_keep_steps(uint32_t s, uint32_t j, Step step) {
  const uint64_t held = stages_->crossing_held(s, j), crossing = stages_->crossing(s, j);
  const uint32_t need = step.need;
  for (const KeepOption& option : stages_->keep_options(s, j)) {
    step.keeps = &option;
    step.need = std::max(need, units(option.peak));
    // There are many options, and bytes are rounded to units: the search would always pick the
    // options whose bytes happen to be rounded down. So they are rounded up a little here.
    const uint64_t bytes = option.bytes + options_.unit / 4;
    step.hold_plain = units(held + bytes);
    step.hold_child = units(crossing + bytes);
    step.cost = static_cast<float>(option.cost / options_.cost_unit);
    step.extra_plain = static_cast<float>((option.unaided_cost - option.cost) / options_.cost_unit);
    steps_.push_back(step);
  }
}

float ChainPlanner::child_rest(const Step& step, uint32_t t, uint32_t m) const {
  return m < step.hold_child ? infeasible : child_[offset(step.next, t) + m - step.hold_child];
}

float ChainPlanner::plain_rest(const Step& step, uint32_t t, uint32_t m) const {
  return step.extra_plain + plain_[offset(step.next, t) + m - step.hold_plain];
}

float ChainPlanner::cost_of(const Step& step, uint32_t s, uint32_t t, uint32_t m) const {
  if (m < std::max(step.need, step.hold_plain)) return infeasible;
  float cost = step.cost;
  if (step.child && !step.keeps) cost += best_[offset(s, step.next) + m];
  if (step.next == t) return cost;
  return cost + std::min(child_rest(step, t, m), plain_rest(step, t, m));
}

// The same for all m at once. The time of planning goes into these two loops: they are written so
// that compilers use vectors.
void ChainPlanner::relax(const Step& step, uint32_t s, uint32_t t) {
  const size_t first = std::max(step.need, step.hold_plain), end = options_.slots + size_t{1};
  if (first >= end) return;
  const size_t both = std::clamp<size_t>(step.hold_child, first, end);
  const bool last = step.next == t;
  float* result = &(step.child ? child_ : plain_)[offset(s, t)];
  const float* own = step.child && !step.keeps ? &best_[offset(s, step.next)] : zeros_.data();
  const float* plain = last ? zeros_.data() : &plain_[offset(step.next, t)];
  const float* child = last ? zeros_.data() : &child_[offset(step.next, t)];
  const float cost = step.cost, plain_cost = step.cost + step.extra_plain;
  plain += first - step.hold_plain;
  for (size_t m = first; m < both; ++m, ++plain)
    result[m] = std::min(result[m], plain_cost + own[m] + *plain);
  if (both == end) return;
  result += both;
  own += both;
  child += both - step.hold_child;
  for (size_t i = 0; i < end - both; ++i)
    result[i] = std::min(result[i], own[i] + std::min(cost + child[i], plain_cost + plain[i]));
}

void ChainPlanner::append_plan(uint32_t slots, int32_t parent, RecomputePlan& plan) {
  walk(0, stages_->count(), slots, parent, plan);
}

void ChainPlanner::walk(uint32_t s, uint32_t t, uint32_t m, int32_t parent, RecomputePlan& plan) {
  bool child = child_[offset(s, t) + m] < plain_[offset(s, t) + m];
  while (s < t) {
    if (child && s + 1 == t) return inner_[s]->append_plan(m, parent, plan);
    steps_.clear();
    if (child)
      add_child_steps(s, t);
    else
      add_plain_steps(s, t);
    const Step step = *std::min_element(
        steps_.begin(), steps_.end(),
        [&](const Step& a, const Step& b) { return cost_of(a, s, t, m) < cost_of(b, s, t, m); });
    if (child) {
      const auto index = static_cast<int32_t>(plan.segments.size());
      plan.segments.push_back({stages_->positions[s], stages_->positions[step.next], parent});
      if (step.keeps)
        plan.keep.insert(plan.keep.end(), step.keeps->kept.begin(), step.keeps->kept.end());
      else
        walk(s, step.next, m, index, plan);
    }
    if (step.next == t) return;
    child = child_rest(step, t, m) < plain_rest(step, t, m);
    m -= child ? step.hold_child : step.hold_plain;
    s = step.next;
  }
}

}  // namespace rw
