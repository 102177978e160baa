#include "planner/search/cost_rows.h"

#include "core/base/vector_versions.h"

namespace rw {

namespace {

// Most of the planning time is spent in these loops.
REWIND_VECTOR_VERSIONS void lower(float* __restrict costs, size_t count, float cost,
                                  const float* __restrict own, const float* __restrict rest) {
  for (size_t i = 0; i < count; ++i) costs[i] = std::min(costs[i], cost + own[i] + rest[i]);
}

REWIND_VECTOR_VERSIONS void lower(float* __restrict costs, size_t count, float cost,
                                  const float* __restrict rest) {
  for (size_t i = 0; i < count; ++i) costs[i] = std::min(costs[i], cost + rest[i]);
}

REWIND_VECTOR_VERSIONS void fill(float* costs, size_t count, float cost) {
  for (size_t i = 0; i < count; ++i) costs[i] = cost;
}

// Returns how many of the costs, which never rise, are higher than `least`. The search has no
// branches, which would be hard to predict.
size_t count_higher(const float* costs, size_t count, float least) {
  const float* begin = costs;
  for (; count > 0; count -= (count + 1) / 2) {
    const size_t half = (count + 1) / 2;
    begin += begin[half - 1] > least ? half : 0;
  }
  return static_cast<size_t>(begin - costs);
}

constexpr float no_cost = 0;

}  // namespace

const CostRow CostStore::free = {.last = 1, .costs = &no_cost, .least = 0};

void CostDraft::extend(uint32_t end) {
  if (end <= end_) return;
  fill(&costs_[end_], end - end_, least_);
  end_ = end;
}

uint32_t CostDraft::add(uint32_t first, float cost, const CostRow& own, const CostRow& rest,
                        uint32_t hold) {
  if (!own.is_feasible() || !rest.is_feasible()) return 0;
  first = std::max({first, own.first, rest.first + hold});
  if (first >= units()) return 0;
  const uint32_t rest_last = rest.last + hold;
  uint32_t end = std::clamp(std::max(own.last, rest_last), first + 1, units());
  const float least = cost + CostStore::cost(own, end - 1) + CostStore::cost(rest, end - 1 - hold);
  // Known ways may be at least as cheap from the start, or from some memory on.
  if ((first < end_ ? costs_[first] : least_) <= least) return 0;
  if (least < least_) {
    extend(end);
    end_ = end;  // later costs are higher
    least_ = least;
  } else {
    end = first + static_cast<uint32_t>(count_higher(&costs_[first], end_ - first, least));
  }
  const uint32_t numbers = end - first;
  for (uint32_t m = first; m < end;) {
    const bool own_ends = m >= own.last, rest_ends = m >= rest_last;
    uint32_t part = end;
    if (!own_ends) part = std::min(part, own.last);
    if (!rest_ends) part = std::min(part, rest_last);
    float* costs = &costs_[m];
    const size_t count = part - m;
    if (!own_ends && !rest_ends)
      lower(costs, count, cost, CostStore::at(own, m), CostStore::at(rest, m - hold));
    else if (!own_ends)
      lower(costs, count, cost + rest.least, CostStore::at(own, m));
    else if (!rest_ends)
      lower(costs, count, cost + own.least, CostStore::at(rest, m - hold));
    else
      fill(costs, count, least);
    m = part;
  }
  return numbers;
}

void CostDraft::add(const CostRow& row) {
  if (!row.is_feasible()) return;
  extend(row.last);
  for (uint32_t m = row.first; m < row.last; ++m)
    costs_[m] = std::min(costs_[m], *CostStore::at(row, m));
  for (uint32_t m = row.last; m < end_; ++m) costs_[m] = std::min(costs_[m], row.least);
  least_ = std::min(least_, row.least);
}

CostRow CostStore::add(const CostDraft& draft) {
  if (draft.least_ >= infeasible_cost) return {};
  const auto begin = draft.costs_.begin(), end = begin + draft.end_;
  const auto first =
      std::partition_point(begin, end, [](float cost) { return cost >= infeasible_cost; });
  auto last = std::partition_point(first, end, [&](float c) { return c > draft.least_; });
  if (last < end) ++last;
  const auto count = static_cast<size_t>(last - first);
  if (used_ + count > piece) {
    pieces_.push_back(std::make_unique_for_overwrite<float[]>(std::max(piece, count)));
    used_ = 0;
  }
  float* const costs = &pieces_.back()[used_];
  std::copy(first, last, costs);
  used_ += count;
  return {.first = static_cast<uint32_t>(first - begin),
          .last = static_cast<uint32_t>(last - begin),
          .costs = costs,
          .least = draft.least_};
}

}  // namespace rw
