#include "planner/search/polish.h"

#include <algorithm>
#include <span>

#include "planner/graph/evaluate.h"
#include "planner/graph/tuning.h"
#include "planner/graph/uses.h"

namespace rw {

namespace {

class Polish {
 public:
  Polish(const Graph& graph, uint64_t bytes, Plan plan)
      : graph_(graph),
        bytes_(bytes),
        best_(std::move(plan)),
        tries_(tuning::polish_work / std::max<size_t>(1, graph.records.size())) {}

  Plan run(PlanWork* work) {
    const size_t allowed = tries_;
    if (graph_.can_offload()) offload_more();
    swap_in();
    keep_more();
    for (size_t s = best_.segments.size(); s-- > 0;) accept(without_segment(s));
    if (work) work->count(tuning::step_work * (allowed - tries_) * graph_.records.size());
    return std::move(best_);
  }

 private:
  bool accept(Plan plan) {
    if (tries_ == 0) return false;
    --tries_;
    fill_in(graph_, plan, bytes_);
    const bool fits = plan.peak <= bytes_ && plan.offloaded <= graph_.host_bytes;
    if (!fits || plan.cost >= best_.cost) return false;
    best_ = std::move(plan);
    return true;
  }

  Plan without_segment(size_t dropped) const {
    Plan plan = best_;
    plan.segments.clear();
    const Plan::Segment gone = best_.segments[dropped];
    for (size_t s = 0; s < best_.segments.size(); ++s) {
      Plan::Segment segment = best_.segments[s];
      if (s == dropped) continue;
      if (segment.parent == static_cast<int32_t>(dropped)) segment.parent = gone.parent;
      if (segment.parent > static_cast<int32_t>(dropped)) --segment.parent;
      plan.segments.push_back(segment);
    }
    drop_keeps(static_cast<int32_t>(dropped), plan);
    return plan;
  }

  // Removes keeps that lost their segment: values that the dropped segment's replay kept, values
  // that were made only in it, and values that the replay that keeps them now makes itself.
  void drop_keeps(int32_t dropped, Plan& plan) const {
    const std::vector<int32_t> innermost = innermost_segments(plan);
    std::erase_if(plan.keep, [&](Plan::Output& kept) {
      if (kept.replay == dropped) return true;
      if (kept.replay > dropped) --kept.replay;
      return innermost[kept.record] == kept.replay;
    });
  }

  // Returns the innermost segment of each record, -1 for none.
  std::vector<int32_t> innermost_segments(const Plan& plan) const {
    std::vector<int32_t> innermost(graph_.records.size(), -1);
    for (size_t s = 0; s < plan.segments.size(); ++s)
      std::fill(innermost.begin() + plan.segments[s].first,
                innermost.begin() + plan.segments[s].last, static_cast<int32_t>(s));
    return innermost;
  }

  // Returns the values that segments drop and that cost more than this to recompute per byte, the
  // most expensive first.
  std::vector<uint32_t> dropped_values(double least) const {
    const std::vector<int32_t> innermost = innermost_segments(best_);
    std::vector<bool> kept(graph_.values.size());
    for (const Plan::Output& output : best_.keep)
      if (output.replay < 0) kept[graph_.value(output)] = true;
    std::vector<uint32_t> dropped;
    for (uint32_t v = 0; v < graph_.values.size(); ++v) {
      const int32_t record = graph_.values[v].record;
      if (record >= 0 && innermost[record] >= 0 && !kept[v] && graph_.cost_per_byte(v) > least)
        dropped.push_back(v);
    }
    std::stable_sort(dropped.begin(), dropped.end(), [&](uint32_t a, uint32_t b) {
      return graph_.cost_per_byte(a) > graph_.cost_per_byte(b);
    });
    return dropped;
  }

  // Returns the largest count, at most `size`, for which the plan of plan_of(count) was accepted,
  // by bisection.
  template <class F>
  size_t most(size_t size, F&& plan_of) {
    size_t fits = 0, too_many = size + 1;
    while (too_many - fits > 1) {
      const size_t middle = fits + (too_many - fits) / 2;
      (accept(plan_of(middle)) ? fits : too_many) = middle;
    }
    return fits;
  }

  // Values that are cheaper to offload than to recompute go to the host, as many as it has room
  // for.
  void offload_more() {
    std::vector<uint32_t> more = dropped_values(graph_.offload_cost);
    std::erase_if(more, [&](uint32_t v) {
      return graph_.values[v].bytes < bytes_ / (tuning::slots * tuning::slot_to_offload);
    });
    const std::vector<ValueUse> uses = value_uses(graph_);
    const Plan start = best_;
    most(more.size(), [&](size_t count) {
      Plan plan = with_kept(start, {more.data(), count});
      for (size_t i = 0; i < count; ++i)
        plan.offloads.push_back(offload_of(graph_, uses, more[i], false));
      put_in_order(plan.offloads);
      return plan;
    });
  }

  // Values that are away for the least time stay on the device, as many as fit.
  void swap_in() {
    Plan start = best_;
    std::ranges::sort(start.offloads, {}, &Plan::Offload::record);
    most(start.offloads.size(), [&](size_t count) {
      Plan plan = start;
      plan.offloads.resize(plan.offloads.size() - count);
      put_in_order(plan.offloads);
      return plan;
    });
  }

  // Keeps as many further values as fit, the most expensive per byte first; then tries single ones.
  void keep_more() {
    const std::vector<uint32_t> more = dropped_values(0);
    const Plan start = best_;
    const size_t fits = most(more.size(), [&](size_t count) {
      return with_kept(start, {more.data(), count});
    });
    for (size_t k = fits; k < std::min(more.size(), fits + tuning::single_tries); ++k)
      accept(with_kept(best_, {&more[k], 1}));
  }

  Plan with_kept(Plan plan, std::span<const uint32_t> values) const {
    for (uint32_t v : values) plan.keep.push_back(graph_.output(v));
    return plan;
  }

  const Graph& graph_;
  uint64_t bytes_;
  Plan best_;
  size_t tries_;
};

}  // namespace

Plan polish(const Graph& graph, uint64_t bytes, Plan plan, PlanWork* work) {
  return Polish(graph, bytes, std::move(plan)).run(work);
}

}  // namespace rw
