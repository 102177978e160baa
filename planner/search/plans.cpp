#include "planner/search/plans.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "planner/graph/cuts.h"
#include "planner/graph/evaluate.h"
#include "planner/graph/tuning.h"
#include "planner/graph/uses.h"
#include "planner/search/chain.h"
#include "planner/search/polish.h"
#include "planner/search/speed.h"

namespace rw {

namespace {

// For each value, counts the heavy ones made since the forward pass last had a single live value,
// the output of a layer.
std::vector<uint32_t> places_in_layers(const Graph& graph, const std::vector<ValueUse>& uses) {
  std::vector<uint32_t> places(graph.values.size());
  std::vector<int32_t> ends(graph.records.size() + 1);
  int32_t crossing = 0;
  uint32_t place = 0;
  for (size_t i = 0; i < graph.records.size(); ++i) {
    crossing -= ends[i];
    for (uint32_t v : graph.records[i].outputs) {
      if (uses[v].is_heavy) places[v] = place++;
      if (uses[v].last_reader <= static_cast<int32_t>(i)) continue;
      ++crossing;
      ++ends[static_cast<size_t>(uses[v].last_reader)];
    }
    if (crossing == 1) place = 0;
  }
  return places;
}

// Returns sets of heavy values, from the most expensive per byte to all of them. Among equally
// expensive ones, the first of each layer come first.
std::vector<std::vector<bool>> keep_levels(const Graph& graph, const std::vector<ValueUse>& uses) {
  const std::vector<uint32_t> places = places_in_layers(graph, uses);
  std::map<std::pair<double, uint32_t>, std::vector<uint32_t>> classes;
  double bytes = 0;
  for (uint32_t v = 0; v < graph.values.size(); ++v)
    if (uses[v].is_heavy) {
      classes[{-graph.cost_per_byte(v), places[v]}].push_back(v);
      bytes += static_cast<double>(graph.values[v].bytes);
    }
  std::vector<std::vector<bool>> levels;
  std::vector<bool> kept(graph.values.size());
  double sum = 0, last = 0;
  size_t left = classes.size();
  for (const auto& [order, values] : classes) {
    for (uint32_t v : values) {
      kept[v] = true;
      sum += static_cast<double>(graph.values[v].bytes);
    }
    if (--left > 0 && classes.size() > tuning::levels && sum - last < bytes / tuning::levels)
      continue;
    levels.push_back(kept);
    last = sum;
  }
  return levels;
}

// Runs the dynamic program with finer and finer slots, from the plain peak down to what is
// feasible: linear slots alone would be too coarse for plans that need a hundredth of it.
class BudgetSearch {
 public:
  // With `keeps`, segments may keep some of their values.
  BudgetSearch(const StagedGraph& staged, PlanWork& work, bool nested = true, bool keeps = true)
      : staged_(staged),
        graph_(staged.graph()),
        work_(work),
        uses_(value_uses(graph_)),
        nested_(nested),
        keeps_(keeps),
        stages_(staged.stages(tuning::stages, work)) {
    fill_in(graph_, plain_);
    double cost = 0;
    for (const Graph::Record& record : graph_.records) cost += record.cost;
    cost_unit_ = cost > 0 ? cost : 1;
  }

  const Plan& plain() const { return plain_; }
  bool is_heavy(uint32_t record) const {
    const auto& outputs = graph_.records[record].outputs;
    return !outputs.empty() && uses_[outputs[0]].is_heavy;
  }

  // Makes a planner for up to `range` bytes, with coarse stages if there is not enough work left.
  ChainPlanner planner(uint64_t range) {
    const uint64_t pairs = uint64_t{stages_->count()} * stages_->count();
    if (!is_coarse_ && !work_.allows(std::max(staged_.programme(), tuning::pair_work * pairs))) {
      is_coarse_ = true;
      stages_ = staged_.stages(tuning::coarse_stages, work_);
    }
    ChainPlanner::Options options;
    options.unit = range / tuning::slots + 1;
    options.slots = tuning::slots;
    options.cost_unit = cost_unit_;
    options.nested = nested_;
    options.keeps = keeps_;
    options.inner_limit = nested_ ? tuning::inner_stages : 0;
    ChainPlanner planner(graph_, uses_, stages_, options);
    work_.count(planner.work());
    staged_.programme() = std::max(staged_.programme(), planner.work());
    return planner;
  }

  // Calls visit(planner, least feasible slots, whether it is the last one) for each range of
  // memory.
  template <class F>
  void for_each_range(F&& visit) {
    for (uint64_t range = plain_.peak;; range /= tuning::finer) {
      ChainPlanner planner = this->planner(range);
      uint32_t least = 0;
      while (least <= tuning::slots && !planner.is_feasible(least)) ++least;
      const bool is_last = least > tuning::slots / tuning::finer || planner.unit() == 1;
      if (least <= tuning::slots) visit(planner, least, is_last);
      if (is_last) return;
    }
  }

  Plan plan(ChainPlanner& planner, uint32_t slots) const {
    Plan plan;
    planner.append_plan(slots, -1, plan);
    put_in_order(plan.offloads);
    fill_in(graph_, plan);
    if (plan.offloaded > graph_.host_bytes) keep_to_host(plan);
    work_.count(tuning::step_work * graph_.records.size());
    return plan;
  }

  // Returns the cheapest plan found whose peak is at most `bytes`. The dynamic program rounds
  // peaks, so plans for a little more and for less memory are tried, too.
  std::optional<Plan> within(uint64_t bytes, ChainPlanner& planner) const {
    if (plain_.peak <= bytes) return plain_;
    std::optional<Plan> best;
    const uint64_t most = (bytes + bytes / 8) / planner.unit();
    for (auto slots = static_cast<uint32_t>(std::min<uint64_t>(most, tuning::slots));
         slots > 0 && planner.is_feasible(slots); slots -= 1 + slots / 64) {
      Plan plan = this->plan(planner, slots);
      if (plan.peak > bytes) continue;
      plan = polish(graph_, bytes, std::move(plan), &work_);
      if (!best || plan.cost < best->cost) best = std::move(plan);
      if (uint64_t{slots} * planner.unit() < bytes) break;
    }
    return best;
  }

 private:
  // Drops offloads for which the host has no room: those of the values that are made last, which
  // are away for the least time.
  void keep_to_host(Plan& plan) const {
    uint64_t left = graph_.host_bytes;
    std::ranges::sort(plan.offloads, {}, &Plan::Offload::record);
    std::erase_if(plan.offloads, [&](const Plan::Offload& o) {
      if (o.in_8_bits) return false;
      const uint64_t bytes = graph_.values[graph_.value({o.record, o.slot})].bytes;
      if (bytes > left) return true;
      left -= bytes;
      return false;
    });
    put_in_order(plan.offloads);
    fill_in(graph_, plan);
  }

  const StagedGraph& staged_;
  const Graph& graph_;
  PlanWork& work_;
  std::vector<ValueUse> uses_;
  bool nested_, keeps_;
  bool is_coarse_ = false;
  Plan plain_;
  double cost_unit_ = 1;
  std::shared_ptr<const StageLevels> stages_;
};

// Returns at most `count` slots worth trying: evenly spaced in the logarithm, each lowered as far
// as the cost stays the same.
std::vector<uint32_t> slots_to_try(const ChainPlanner& planner, uint32_t floor, int count) {
  std::vector<uint32_t> slots;
  for (int k = 0; k < count; ++k) {
    const double share = count > 1 ? static_cast<double>(k) / (count - 1) : 0;
    auto m = static_cast<uint32_t>(
        std::lround(tuning::slots * std::pow(static_cast<double>(floor) / tuning::slots, share)));
    while (m > 0 && planner.is_feasible(m - 1) && planner.cost(m - 1) <= planner.cost(m)) --m;
    if (slots.empty() || m < slots.back()) slots.push_back(m);
  }
  return slots;
}

// Returns the plans that no other beats in both cost and peak, by falling peak.
std::vector<Plan> pareto(std::vector<Plan> plans) {
  std::stable_sort(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.peak < b.peak;
  });
  std::vector<Plan> best;
  for (Plan& plan : plans)
    if (best.empty() || plan.peak < best.back().peak) best.push_back(std::move(plan));
  return best;
}

// Returns `count` of them: the first, the last, and others evenly spaced in the logarithm of the
// peak.
std::vector<Plan> thin_out(std::vector<Plan> plans, size_t count) {
  if (plans.size() <= count) return plans;
  const auto peak = [](const Plan& p) { return std::log(static_cast<double>(p.peak) + 1); };
  const double high = peak(plans.front()), low = peak(plans.back());
  std::vector<Plan> chosen;
  size_t next = 0;
  for (size_t k = 0; k < count; ++k) {
    const double target =
        high + (low - high) * static_cast<double>(k) / std::max<double>(1, count - 1);
    const size_t last = plans.size() - (count - k);  // leaves one plan for each that follows
    while (next < last && peak(plans[next]) > target + 1e-9) ++next;
    chosen.push_back(std::move(plans[next++]));
  }
  return chosen;
}

}  // namespace

std::shared_ptr<const StageLevels> StagedGraph::stages(uint32_t limit, PlanWork& work) const {
  std::shared_ptr<const StageLevels>& known = stages_[limit];
  if (known) return known;
  const auto records = static_cast<uint32_t>(graph_.records.size());
  const std::vector<ValueUse> uses = value_uses(graph_);
  known = std::make_shared<StageLevels>(
      graph_, uses, cut_into_stages(graph_, uses, 0, records, limit), keep_levels(graph_, uses));
  work.count(tuning::stage_work * records);
  return known;
}

std::vector<Plan> plan_budgets(const StagedGraph& staged, int count, PlanWork* work) {
  const Graph& graph = staged.graph();
  if (graph.records.empty()) return {Plan{}};
  PlanWork own;
  BudgetSearch search(staged, work ? *work : own);
  std::vector<Plan> plans = {
      search.plain(), plan_speed(graph, [&](uint32_t record) { return search.is_heavy(record); })};
  search.for_each_range([&](ChainPlanner& planner, uint32_t least, bool is_last) {
    const uint32_t floor = is_last ? least : std::max(least, tuning::slots / tuning::finer);
    for (uint32_t slots : slots_to_try(planner, floor, count))
      plans.push_back(search.plan(planner, slots));
  });
  return thin_out(pareto(std::move(plans)), static_cast<size_t>(std::max(count, 1)));
}

std::vector<std::optional<Plan>> plan_each_budget(const StagedGraph& staged,
                                                  std::span<const uint64_t> budgets,
                                                  PlanWork* work) {
  std::vector<std::optional<Plan>> plans(budgets.size());
  if (budgets.empty()) return plans;
  if (staged.graph().records.empty()) return {budgets.size(), Plan{}};
  PlanWork own;
  BudgetSearch search(staged, work ? *work : own);
  const uint64_t most = *std::max_element(budgets.begin(), budgets.end());
  ChainPlanner planner = search.planner(most + most / 8);
  for (size_t i = 0; i < budgets.size(); ++i) plans[i] = search.within(budgets[i], planner);
  return plans;
}

std::optional<Plan> plan_budget(const StagedGraph& staged, uint64_t bytes) {
  return plan_each_budget(staged, {&bytes, 1})[0];
}

Plan plan_memory(const StagedGraph& staged, PlanWork* work) {
  const Graph& graph = staged.graph();
  if (graph.records.empty()) return {};
  PlanWork own;
  if (!work) work = &own;
  Plan best;
  fill_in(graph, best);
  // If many small values are kept, their rounding adds up: a plan that looks small may not be.
  for (const bool keeps : {false, true}) {
    BudgetSearch search(staged, *work, false, keeps);
    search.for_each_range([&](ChainPlanner& planner, uint32_t least, bool) {
      for (uint32_t slots = least;
           slots < std::min(least + tuning::memory_tries, tuning::slots + 1); ++slots) {
        Plan plan = search.plan(planner, slots);
        if (plan.peak < best.peak) best = std::move(plan);
      }
    });
  }
  return polish(graph, best.peak, std::move(best), work);
}

namespace {

void halve(uint32_t first, uint32_t last, uint32_t leaf, int32_t parent, Plan& plan) {
  if (last - first <= leaf || last - first < 2) return;
  const uint32_t middle = first + (last - first + 1) / 2;
  for (const auto& [a, b] : {std::pair{first, middle}, std::pair{middle, last}}) {
    const auto index = static_cast<int32_t>(plan.segments.size());
    plan.segments.push_back({a, b, parent});
    halve(a, b, leaf, index, plan);
  }
}

}  // namespace

Plan nested_halving(uint32_t records, uint32_t leaf) {
  Plan plan;
  halve(0, records, leaf, -1, plan);
  return plan;
}

}  // namespace rw
