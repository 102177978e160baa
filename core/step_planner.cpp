#include "core/step_planner.h"

#include <algorithm>

#include "core/rng.h"

namespace rw {

namespace {

constexpr size_t most_plans = 8, most_seen = 16;
constexpr int most_attempts = 3;  // at one plan, when something keeps its places taken
// Beyond the largest holes, small ones are left to allocations that are not planned.
constexpr size_t most_holes = 64;

}  // namespace

void StepPlanner::mix(uint64_t value) {  // splitmix64 (Steele et al. 2014)
  uint64_t z = hash_ + value + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  hash_ = z ^ (z >> 31);
}

std::optional<StepPlanner::Place> StepPlanner::propose(uint64_t size, Ticket& ticket) {
  const size_t index = step_.size();
  ticket = {number_, static_cast<uint32_t>(index)};
  mix(size);
  step_.push_back({size, clock_++, 0});
  prefixes_.push_back(hash_);
  const auto agrees = [&](const Plan& p) { return index < p.prefixes.size() && p.prefixes[index] == hash_; };
  if (!plan_ || !agrees(*plan_)) {
    plan_ = nullptr;
    for (const auto& plan : plans_)
      if (agrees(*plan) && (!plan_ || plan->used > plan_->used)) plan_ = plan.get();
  }
  return plan_ ? plan_->places[index] : std::nullopt;
}

void StepPlanner::freed(const Ticket& ticket) {
  if (ticket.step != number_) return;
  step_[ticket.index].end = clock_++;
  mix(~uint64_t{ticket.index});
}

void StepPlanner::end_step(const Memory& memory) {
  mix(clock_);
  const auto same = [&](const auto& plan) { return plan->hash == hash_; };
  const auto known = std::find_if(plans_.begin(), plans_.end(), same);
  if (known != plans_.end()) {
    Plan& plan = **known;
    plan.used = number_;
    plan.followed = true;
    if (misses_ == 0) ++followed_steps_;
    else if (plan.attempts < most_attempts) solve(plan, memory);
  } else if (worth_solving()) {
    if (plans_.size() == most_plans)
      plans_.erase(std::min_element(plans_.begin(), plans_.end(),
                                    [](auto& a, auto& b) { return a->used < b->used; }));
    plans_.push_back(std::make_unique<Plan>(
        Plan{.prefixes = prefixes_, .places = {}, .hash = hash_, .used = number_}));
    solve(*plans_.back(), memory);
  }
  all_misses_ += misses_;
  misses_ = 0;
  step_.clear();
  prefixes_.clear();
  plan_ = nullptr;
  hash_ = clock_ = 0;
  ++number_;
}

// New steps are planned at once, unless plans made so were not followed: then at second sight.
bool StepPlanner::worth_solving() {
  if (step_.empty()) return false;
  const auto idle = std::count_if(plans_.begin(), plans_.end(), [](auto& p) { return !p->followed; });
  if (idle < static_cast<long>(most_plans) / 2) return true;
  if (std::find(seen_.begin(), seen_.end(), hash_) != seen_.end()) return true;
  seen_.push_back(hash_);
  if (seen_.size() > most_seen) seen_.erase(seen_.begin());
  return false;
}

void StepPlanner::solve(Plan& plan, const Memory& memory) {
  ++plan.attempts;
  ++planned_steps_;
  const std::vector<Lifetime> lifetimes = dying();
  need_ = std::max(need_, memory.arena.live() + lower_bound(lifetimes));
  // In what is there if that is not much more than needed, else in fresh blocks of the right sizes.
  const bool is_tight = memory.arena.reserved() <= need_ + need_ / 50;
  if (is_tight && place(plan, lifetimes, memory, false)) return;
  memory.trim();
  if (!place(plan, lifetimes, memory, true)) plan.places.assign(step_.size(), std::nullopt);
}

// What lives and dies within the step.
std::vector<Lifetime> StepPlanner::dying() const {
  std::vector<Lifetime> lifetimes;
  for (const Allocation& a : step_)
    if (a.end) lifetimes.push_back({a.size, a.begin, a.end});
  return lifetimes;
}

bool StepPlanner::place(Plan& plan, std::span<const Lifetime> lifetimes, const Memory& memory,
                        bool may_grow) const {
  std::vector<Arena::Range> holes = memory.arena.holes();
  holes.resize(std::min(holes.size(), most_holes));
  std::vector<uint64_t> sizes;
  for (const Arena::Range& hole : holes) sizes.push_back(hole.size);
  const OffsetPlan solution = plan_offsets(lifetimes, sizes, memory.largest_block);
  if (!solution.regions.empty() && !may_grow) return false;
  if (solution.height() > lower_bound(lifetimes) * 5 / 4) return false;  // best fit does as well
  for (const uint64_t height : solution.regions) {
    const std::optional<uint32_t> block = memory.grow(height);
    if (!block) return false;
    holes.push_back({*block, 0, height});
  }
  plan.places.assign(step_.size(), std::nullopt);
  auto next = solution.places.begin();
  for (size_t i = 0; i < step_.size(); ++i) {
    if (step_[i].end == 0) continue;
    const Arena::Range& hole = holes[next->space];
    plan.places[i] = {hole.block, hole.offset + next->offset};
    ++next;
  }
  return true;
}

}  // namespace rw
