#include "rewind/core/memory/step_planner.h"

#include <algorithm>
#include <utility>

#include "rewind/core/base/hash.h"

namespace rw {

namespace {

constexpr size_t most_plans = 64, most_idle = 4, most_seen = 16;
constexpr size_t most_allocations = size_t{1} << 20;  // of a step
constexpr int most_attempts = 3;  // at one plan, when something keeps its places taken
// Beyond the largest holes, small ones are left to allocations that are not planned.
constexpr size_t most_holes = 64;

// Sums of a metric, say. Between the places of steps they would keep those of other steps taken.
bool is_small_and_outlives(const StepTrace::Allocation& a) {
  constexpr uint64_t most = uint64_t{16} << 10;
  return !a.end && !a.wraps && a.size <= most;
}

// Whether it gets a place. What outlives a step that repeats is still there when the next one
// begins, so it cannot lie where the last one's lay, unless that one dies before. A size that is
// larger than every block is an error when it is asked for.
bool is_planned(const StepTrace& trace, const StepTrace::Allocation& a, uint64_t largest) {
  return (a.end || a.wraps || (trace.is_first && !is_small_and_outlives(a))) && a.size <= largest;
}

std::vector<Lifetime> planned(const StepTrace& trace, uint64_t largest) {
  std::vector<Lifetime> lifetimes;
  const auto count = static_cast<uint32_t>(trace.allocations.size());
  for (uint32_t i = 0; i < count; ++i) {
    const StepTrace::Allocation& a = trace.allocations[i];
    if (!is_planned(trace, a, largest)) continue;
    lifetimes.push_back({a.size, a.wraps ? 0 : i, a.end ? a.end : count});
  }
  return lifetimes;
}

}  // namespace

// What was freed since the last allocation counts, but not in which order.
void StepPlanner::mix(uint64_t value) {
  step_.hash = splitmix64(step_.hash + splitmix64(value) + std::exchange(frees_, 0));
}

StepPlanner::Proposal StepPlanner::propose(uint64_t bytes, uint64_t size, Ticket& ticket) {
  if (step_.allocations.size() == most_allocations) {
    is_endless_ = true;
    plan_ = nullptr;
    step_ = {};
  }
  if (is_endless_) return {};
  const size_t index = step_.allocations.size();
  ticket = {number_, static_cast<uint32_t>(index)};
  mix(bytes);  // not the size: batches of nearly one length are told apart by it
  step_.allocations.push_back({size, 0});
  step_.prefixes.push_back(step_.hash);
  follow(index);
  if (!plan_) return {};
  return {plan_->places[index], is_small_and_outlives(plan_->trace.allocations[index])};
}

// Keeps to the plan while it goes on like the step, else takes another one that does.
void StepPlanner::follow(size_t index) {
  const auto agrees = [&](const Plan& p) {
    return index < p.trace.prefixes.size() && p.trace.prefixes[index] == step_.hash;
  };
  if (plan_ && agrees(*plan_)) return;
  plan_ = nullptr;
  if (!solves_) return;
  if (index == 0) solve_new();
  for (const auto& plan : plans_)
    if (!plan->places.empty() && agrees(*plan) && (!plan_ || plan->used > plan_->used))
      plan_ = plan.get();
}

// Only at the start of a step all places are free, and what died since the last one is known. Those
// that begin alike are told apart later, so all are solved, large ones first: the others find their
// places in the same blocks.
void StepPlanner::solve_new() {
  std::vector<std::pair<uint64_t, Plan*>> unsolved;
  for (const auto& plan : plans_)
    if (plan->places.empty() && (plan->trace.is_first || number_ > 1))
      unsolved.emplace_back(lower_bound(planned(plan->trace, memory_.largest_block)), plan.get());
  std::stable_sort(unsolved.begin(), unsolved.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [bytes, plan] : unsolved) solve(*plan);
}

void StepPlanner::freed(const Ticket& ticket) {
  if (is_endless_) return;
  if (ticket.step + 1 == number_ && last_) return outlived(ticket.index);
  if (ticket.step != number_) return;
  step_.allocations[ticket.index].end = static_cast<uint32_t>(step_.allocations.size());
  frees_ += splitmix64(~uint64_t{ticket.index});
}

// An allocation of the step before is freed. Where this one has not begun, that is as if it had
// been freed at the end of its own.
void StepPlanner::outlived(uint32_t index) {
  StepTrace::Allocation& a = last_->trace.allocations[index];
  if (a.end || a.wraps || a.stays) return;  // known, whatever dies when the program ends
  if (step_.allocations.empty()) {
    a.end = static_cast<uint32_t>(last_->trace.allocations.size());
    last_->places.clear();
  } else if (step_.allocations.size() <= index) {  // before its successor comes
    a.wraps = true;
    last_->is_stale = true;
  } else {
    a.stays = true;
  }
}

void StepPlanner::end_step() {
  if (std::exchange(is_endless_, false)) {
    last_ = nullptr;
    ++number_;
    return;
  }
  mix(0);
  step_.is_first = number_ == 1;
  const auto same = [&](const auto& plan) { return plan->trace.hash == step_.hash; };
  const auto known = std::find_if(plans_.begin(), plans_.end(), same);
  last_ = nullptr;
  if (known != plans_.end()) {
    Plan& plan = **known;
    last_ = &plan;
    plan.used = number_;
    plan.followed = true;
    if (std::exchange(plan.is_stale, false)) plan.places.clear();
    if (misses_ == 0 && plan_ == &plan && plan.is_placed)
      ++followed_steps_;
    else if (plan.attempts < most_attempts)
      plan.places.clear();
  } else if (!step_.allocations.empty() && (!solves_ || worth_solving())) {
    last_ = &add(step_);
  }
  all_misses_ += misses_;
  misses_ = 0;
  step_ = {};
  plan_ = nullptr;
  ++number_;
}

// New steps are planned at once, unless plans made so were not followed: then at second sight.
bool StepPlanner::worth_solving() {
  if (step_.allocations.empty()) return false;
  const auto idle =
      std::count_if(plans_.begin(), plans_.end(), [](auto& p) { return !p->followed; });
  if (idle < static_cast<long>(most_idle)) return true;
  if (std::find(seen_.begin(), seen_.end(), step_.hash) != seen_.end()) return true;
  seen_.push_back(step_.hash);
  if (seen_.size() > most_seen) seen_.erase(seen_.begin());
  return false;
}

StepPlanner::Plan& StepPlanner::add(StepTrace trace) {
  if (plans_.size() == most_plans)
    plans_.erase(std::min_element(plans_.begin(), plans_.end(),
                                  [](auto& a, auto& b) { return a->used < b->used; }));
  plans_.push_back(std::make_unique<Plan>(Plan{.trace = std::move(trace), .used = number_}));
  return *plans_.back();
}

std::vector<StepTrace> StepPlanner::traces() const {
  std::vector<StepTrace> all;
  for (const auto& plan : plans_) all.push_back(plan->trace);
  return all;
}

void StepPlanner::learn(std::vector<StepTrace> traces) {
  last_ = nullptr;
  for (StepTrace& trace : traces) {
    need_ = std::max(need_, lower_bound(planned(trace, memory_.largest_block)));
    add(std::move(trace));
  }
}

void StepPlanner::solve(Plan& plan) {
  ++plan.attempts;
  const std::vector<Lifetime> lifetimes = planned(plan.trace, memory_.largest_block);
  need_ = std::max(need_, memory_.arena.live() + lower_bound(lifetimes));
  // In what is there if that is not much more than needed, else in fresh blocks of the right sizes.
  const bool is_tight = memory_.arena.reserved() <= need_ + need_ / 50;
  plan.is_placed = is_tight && place(plan, lifetimes, false);
  if (plan.is_placed) return;
  memory_.trim();
  plan.is_placed = place(plan, lifetimes, true);
  if (!plan.is_placed) plan.places.assign(plan.trace.allocations.size(), std::nullopt);
}

bool StepPlanner::place(Plan& plan, std::span<const Lifetime> lifetimes, bool may_grow) const {
  std::vector<Arena::Range> holes = memory_.arena.holes();
  holes.resize(std::min(holes.size(), most_holes));
  std::vector<uint64_t> sizes;
  for (const Arena::Range& hole : holes) sizes.push_back(hole.size);
  const OffsetPlan solution = plan_offsets(lifetimes, sizes, memory_.largest_block);
  if (!solution.regions.empty() && !may_grow) return false;
  if (solution.height() > lower_bound(lifetimes) * 5 / 4) return false;  // best fit does as well
  for (const uint64_t height : solution.regions) {
    const std::optional<uint32_t> block = memory_.grow(height);
    if (!block) return false;
    holes.push_back({*block, 0, height});
  }
  const auto& allocations = plan.trace.allocations;
  plan.places.assign(allocations.size(), std::nullopt);
  auto next = solution.places.begin();
  for (size_t i = 0; i < allocations.size(); ++i) {
    if (!is_planned(plan.trace, allocations[i], memory_.largest_block)) continue;
    const Arena::Range& hole = holes[next->space];
    plan.places[i] = {hole.block, hole.offset + next->offset};
    ++next;
  }
  return true;
}

}  // namespace rw
