#include "core/recompute_plan.h"

#include <algorithm>
#include <cmath>

#include "core/recompute_chain.h"

namespace rw {

namespace {

constexpr uint32_t slot_count = 768;   // of memory, in one dynamic programme
constexpr uint32_t stage_limit = 128;  // its time grows with the third power
constexpr uint32_t inner_limit = 16;

void measure(const RecomputeGraph& graph, RecomputePlan& plan) {
  const PlanCost cost = evaluate(graph, plan);
  plan.cost = cost.cost;
  plan.peak = cost.peak;
}

// Runs the dynamic programme with finer and finer slots, from the plain peak down to what is
// feasible: linear slots alone would be too coarse for plans that need a hundredth of it.
class BudgetSearch {
 public:
  BudgetSearch(const RecomputeGraph& graph, bool nested)
      : graph_(graph), uses_(value_uses(graph)), nested_(nested) {
    measure(graph, plain_);
    double cost = 0;
    for (const GraphRecord& record : graph.records) cost += record.cost;
    cost_unit_ = cost > 0 ? cost : 1;
    positions_ = cut_into_stages(graph, uses_, 0, static_cast<uint32_t>(graph.records.size()),
                                 stage_limit);
  }

  const RecomputePlan& plain() const { return plain_; }

  // Calls visit(planner, least feasible slots) for each range of memory.
  template <class F>
  void for_each_range(F&& visit) const {
    for (uint64_t range = plain_.peak; range > slot_count; range /= fall) {
      ChainPlanner::Options options;
      options.unit = range / slot_count + 1;
      options.slots = slot_count;
      options.cost_unit = cost_unit_;
      options.nested = nested_;
      options.inner_limit = nested_ ? inner_limit : 0;
      ChainPlanner planner(graph_, uses_, positions_, options);
      uint32_t least = 0;
      while (least <= slot_count && planner.cost(least) >= ChainPlanner::infeasible) ++least;
      if (least <= slot_count) visit(planner, least);
      if (least > slot_count / fall) return;
    }
  }

  RecomputePlan plan(ChainPlanner& planner, uint32_t slots) const {
    RecomputePlan plan;
    planner.append_plan(slots, -1, plan);
    measure(graph_, plan);
    return plan;
  }

  static constexpr uint32_t fall = 4;

 private:
  const RecomputeGraph& graph_;
  std::vector<ValueUse> uses_;
  bool nested_;
  RecomputePlan plain_;
  double cost_unit_ = 1;
  std::vector<uint32_t> positions_;
};

// Slots worth trying, `count` or fewer: spread evenly in the logarithm, each lowered as far as it
// costs no more.
std::vector<uint32_t> slots_to_try(const ChainPlanner& planner, uint32_t least, int count) {
  std::vector<uint32_t> slots;
  const uint32_t floor = std::max(least, slot_count / BudgetSearch::fall);
  for (int k = 0; k < count; ++k) {
    const double share = count > 1 ? static_cast<double>(k) / (count - 1) : 0;
    auto m = static_cast<uint32_t>(
        std::lround(slot_count * std::pow(static_cast<double>(floor) / slot_count, share)));
    while (m > least && planner.cost(m - 1) <= planner.cost(m)) --m;
    if (slots.empty() || m < slots.back()) slots.push_back(m);
  }
  return slots;
}

// Those that no other beats in both cost and peak, by falling peak.
std::vector<RecomputePlan> pareto(std::vector<RecomputePlan> plans) {
  std::stable_sort(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.peak < b.peak;
  });
  std::vector<RecomputePlan> best;
  for (RecomputePlan& plan : plans)
    if (best.empty() || plan.peak < best.back().peak) best.push_back(std::move(plan));
  return best;
}

// `count` of them: the first, the last, and others spread evenly in the logarithm of the peak.
std::vector<RecomputePlan> thin_out(std::vector<RecomputePlan> plans, size_t count) {
  if (plans.size() <= count) return plans;
  const auto peak = [](const RecomputePlan& p) { return std::log(static_cast<double>(p.peak) + 1); };
  const double high = peak(plans.front()), low = peak(plans.back());
  std::vector<RecomputePlan> chosen;
  size_t next = 0;
  for (size_t k = 0; k < count; ++k) {
    const double target = high + (low - high) * static_cast<double>(k) / std::max<double>(1, count - 1);
    const size_t last = plans.size() - (count - k);  // leaves one for each that follows
    while (next < last && peak(plans[next]) > target + 1e-9) ++next;
    chosen.push_back(std::move(plans[next++]));
  }
  return chosen;
}

}  // namespace

std::vector<RecomputePlan> plan_budgets(const RecomputeGraph& graph, int count) {
  if (graph.records.empty()) return {RecomputePlan{}};
  const BudgetSearch search(graph, true);
  std::vector<RecomputePlan> plans = {search.plain()};
  search.for_each_range([&](ChainPlanner& planner, uint32_t least) {
    for (uint32_t slots : slots_to_try(planner, least, count))
      plans.push_back(search.plan(planner, slots));
  });
  return thin_out(pareto(std::move(plans)), static_cast<size_t>(std::max(count, 1)));
}

RecomputePlan plan_memory(const RecomputeGraph& graph) {
  if (graph.records.empty()) return {};
  const BudgetSearch search(graph, false);
  constexpr uint32_t tries = 8;  // slots are rounded: the least feasible may not be the least peak
  RecomputePlan best = search.plain();
  search.for_each_range([&](ChainPlanner& planner, uint32_t least) {
    for (uint32_t slots = least; slots < std::min(least + tries, slot_count + 1); ++slots) {
      RecomputePlan plan = search.plan(planner, slots);
      if (plan.peak < best.peak) best = std::move(plan);
    }
  });
  return best;
}

namespace {

// Segments of plan_speed: each ends after a heavy record, where it pays.
class SpeedSegments {
 public:
  SpeedSegments(const RecomputeGraph& graph, const std::function<bool(uint32_t)>& is_heavy)
      : graph_(graph), uses_(value_uses(graph)), heavy_(graph.records.size()) {
    for (uint32_t i = 0; i < heavy_.size(); ++i) heavy_[i] = is_heavy(i);
  }

  RecomputePlan run() {
    const auto n = static_cast<uint32_t>(graph_.records.size());
    for (uint32_t i = 0; i < n; ++i) {
      add(i);
      if (heavy_[i] && pays(i + 1)) close(i + 1);
    }
    if (spared_ > crossing(n)) close(n);
    keep_heavy();
    return std::move(plan_);
  }

 private:
  uint64_t bytes(uint32_t v) const { return graph_.values[v].bytes; }

  void add(uint32_t i) {
    for (uint32_t v : graph_.records[i].outputs) {
      if (heavy_[i]) continue;
      light_.push_back(v);
      if (uses_[v].saved) spared_ += bytes(v);
    }
  }

  // Bytes that the next segment has to hold if one ends here, heavy values apart.
  uint64_t crossing(uint32_t end) const {
    uint64_t sum = 0;
    for (uint32_t v : light_)
      if (uses_[v].last_reader >= static_cast<int32_t>(end)) sum += bytes(v);
    return sum;
  }

  bool pays(uint32_t end) const { return 2 * crossing(end) <= spared_; }

  void close(uint32_t end) {
    if (spared_ > 0) plan_.segments.push_back({first_, end, -1});
    first_ = end;
    spared_ = 0;
    light_.clear();
  }

  // Heavy values that a replay would have to make again.
  void keep_heavy() {
    for (const auto& segment : plan_.segments)
      for (uint32_t i = segment.first; i < segment.last; ++i) {
        if (!heavy_[i]) continue;
        for (uint32_t v : graph_.records[i].outputs)
          if (is_read_in(v, i, segment.last)) plan_.keep.push_back(v);
      }
  }

  bool is_read_in(uint32_t v, uint32_t first, uint32_t last) const {
    if (uses_[v].saved) return true;
    for (uint32_t i = first; i < last; ++i) {
      const auto& inputs = graph_.records[i].inputs;
      if (std::find(inputs.begin(), inputs.end(), v) != inputs.end()) return true;
    }
    return false;
  }

  const RecomputeGraph& graph_;
  std::vector<ValueUse> uses_;
  std::vector<bool> heavy_;
  RecomputePlan plan_;
  uint32_t first_ = 0;
  uint64_t spared_ = 0;          // bytes that vjps read and the open segment drops
  std::vector<uint32_t> light_;  // made by its other records
};

}  // namespace

RecomputePlan plan_speed(const RecomputeGraph& graph,
                         const std::function<bool(uint32_t record)>& is_heavy) {
  RecomputePlan plan = SpeedSegments(graph, is_heavy).run();
  measure(graph, plan);
  return plan;
}

namespace {

void halve(uint32_t first, uint32_t last, uint32_t leaf, int32_t parent, RecomputePlan& plan) {
  if (last - first <= leaf || last - first < 2) return;
  const uint32_t middle = first + (last - first + 1) / 2;
  for (const auto& [a, b] : {std::pair{first, middle}, std::pair{middle, last}}) {
    const auto index = static_cast<int32_t>(plan.segments.size());
    plan.segments.push_back({a, b, parent});
    halve(a, b, leaf, index, plan);
  }
}

}  // namespace

RecomputePlan nested_halving(uint32_t records, uint32_t leaf) {
  RecomputePlan plan;
  halve(0, records, leaf, -1, plan);
  return plan;
}

}  // namespace rw
