#include "core/arena/step_layouts.h"

#include <algorithm>
#include <utility>

#include "core/base/hash.h"

namespace rw {

namespace {

constexpr size_t most_known = 64, most_idle = 4, most_seen = 16;
constexpr size_t most_allocations = size_t{1} << 20;  // of a step
constexpr int most_attempts = 3;  // at one layout, when something keeps its places taken
// Beyond the largest holes, small ones are left to allocations that are not planned.
constexpr size_t most_holes = 64;

// Sums of a metric, say. Between the places of steps they would keep those of other steps taken.
bool is_small_and_outlives(const StepTrace::Allocation& a) {
  constexpr uint64_t most = uint64_t{16} << 10;
  return !a.end && !a.wraps && a.size <= most;
}

// Tells whether an allocation gets a place. A value that outlives a step that repeats is still
// there when the next step begins, so it cannot lie where the last step's lay, unless that one dies
// before. A size that is larger than every block is an error when it is asked for.
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

struct StepLayouts::StepLayout {
  StepTrace trace;
  std::vector<std::optional<Arena::Range>> places = {};  // without sizes; empty: not solved yet
  uint64_t used = 0;  // the number of the last step that was like it
  int attempts = 0;
  bool is_placed = false, followed = false;
  bool is_stale = false;  // its places were made with less knowledge of lifetimes
};

StepLayouts::StepLayouts(const Arena& arena, uint64_t largest_block, Grow grow,
                         std::function<void()> trim)
    : arena_(arena),
      largest_block_(largest_block),
      grow_(std::move(grow)),
      trim_(std::move(trim)) {}
StepLayouts::~StepLayouts() = default;

// The frees since the last allocation count, but not their order.
void StepLayouts::mix(uint64_t value) {
  step_.hash = splitmix64(step_.hash + splitmix64(value) + std::exchange(frees_, 0));
}

std::pair<std::optional<Arena::Range>, bool> StepLayouts::propose(uint64_t bytes, uint64_t size,
                                                                  Ticket& ticket) {
  if (step_.allocations.size() == most_allocations) {
    is_endless_ = true;
    followed_ = nullptr;
    forget_step();
  }
  if (is_endless_) return {};
  const size_t index = step_.allocations.size();
  ticket = {number_, static_cast<uint32_t>(index)};
  mix(bytes);  // not the size: batches of nearly one length are told apart by it
  step_.allocations.push_back({size, 0});
  step_.prefixes.push_back(step_.hash);
  follow(index);
  if (!followed_) return {};
  std::optional<Arena::Range> place = followed_->places[index];
  if (place) place->size = size;
  return {place, is_small_and_outlives(followed_->trace.allocations[index])};
}

// Keeps to the step that is followed while this one goes on like it, else takes another that does.
void StepLayouts::follow(size_t index) {
  const auto agrees = [&](const StepLayout& p) {
    return index < p.trace.prefixes.size() && p.trace.prefixes[index] == step_.hash;
  };
  if (followed_ && agrees(*followed_)) return;
  followed_ = nullptr;
  if (!solves_) return;
  if (index == 0) solve_new();
  for (const auto& layout : known_)
    if (!layout->places.empty() && agrees(*layout) &&
        (!followed_ || layout->used > followed_->used))
      followed_ = layout.get();
}

// Only at the start of a step all places are free, and what died since the last one is known. Those
// that begin alike are told apart later, so all are solved, large ones first: the others find their
// places in the same blocks.
void StepLayouts::solve_new() {
  std::vector<std::pair<uint64_t, StepLayout*>> unsolved;
  for (const auto& layout : known_)
    if (layout->places.empty() && (layout->trace.is_first || number_ > 1))
      unsolved.emplace_back(lower_bound(planned(layout->trace, largest_block_)), layout.get());
  std::stable_sort(unsolved.begin(), unsolved.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [bytes, layout] : unsolved) solve(*layout);
}

void StepLayouts::freed(const Ticket& ticket) {
  if (is_endless_) return;
  if (ticket.step + 1 == number_ && last_) return outlived(ticket.index);
  if (ticket.step != number_) return;
  step_.allocations[ticket.index].end = static_cast<uint32_t>(step_.allocations.size());
  frees_ += splitmix64(~uint64_t{ticket.index});
}

// An allocation of the step before is freed. Where this one has not begun, that is as if it had
// been freed at the end of its own.
void StepLayouts::outlived(uint32_t index) {
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

void StepLayouts::end_step() {
  if (std::exchange(is_endless_, false)) {
    last_ = nullptr;
    ++number_;
    return;
  }
  mix(0);
  step_.is_first = number_ == 1;
  const auto same = [&](const auto& layout) { return layout->trace.hash == step_.hash; };
  const auto found = std::find_if(known_.begin(), known_.end(), same);
  last_ = nullptr;
  if (found != known_.end()) {
    StepLayout& layout = **found;
    last_ = &layout;
    layout.used = number_;
    layout.followed = true;
    if (std::exchange(layout.is_stale, false)) layout.places.clear();
    if (misses_ == 0 && followed_ == &layout && layout.is_placed)
      ++followed_steps_;
    else if (layout.attempts < most_attempts)
      layout.places.clear();
  } else if (!step_.allocations.empty() && (!solves_ || worth_solving())) {
    last_ = &add(step_);
  }
  all_misses_ += misses_;
  misses_ = 0;
  forget_step();
  followed_ = nullptr;
  ++number_;
}

// The next one is likely to be as long.
void StepLayouts::forget_step() {
  step_.allocations.clear();
  step_.prefixes.clear();
  step_.hash = 0;
}

// New steps are planned at once, unless plans made so were not followed: then at second sight.
bool StepLayouts::worth_solving() {
  if (step_.allocations.empty()) return false;
  const auto idle =
      std::count_if(known_.begin(), known_.end(), [](auto& p) { return !p->followed; });
  if (idle < static_cast<long>(most_idle)) return true;
  if (std::find(seen_.begin(), seen_.end(), step_.hash) != seen_.end()) return true;
  seen_.push_back(step_.hash);
  if (seen_.size() > most_seen) seen_.erase(seen_.begin());
  return false;
}

StepLayouts::StepLayout& StepLayouts::add(StepTrace trace) {
  if (known_.size() == most_known)
    known_.erase(std::min_element(known_.begin(), known_.end(),
                                  [](auto& a, auto& b) { return a->used < b->used; }));
  known_.push_back(
      std::make_unique<StepLayout>(StepLayout{.trace = std::move(trace), .used = number_}));
  return *known_.back();
}

std::vector<StepTrace> StepLayouts::traces() const {
  std::vector<StepTrace> all;
  for (const auto& layout : known_) all.push_back(layout->trace);
  return all;
}

void StepLayouts::learn(std::vector<StepTrace> traces) {
  last_ = nullptr;
  for (StepTrace& trace : traces) {
    need_ = std::max(need_, lower_bound(planned(trace, largest_block_)));
    add(std::move(trace));
  }
}

void StepLayouts::solve(StepLayout& layout) {
  ++layout.attempts;
  const std::vector<Lifetime> lifetimes = planned(layout.trace, largest_block_);
  need_ = std::max(need_, arena_.live() + lower_bound(lifetimes));
  // In what is there if that is not much more than needed, else in fresh blocks of the right sizes.
  const bool is_tight = arena_.reserved() <= need_ + need_ / 50;
  layout.is_placed = is_tight && place(layout, lifetimes, false);
  if (layout.is_placed) return;
  trim_();
  layout.is_placed = place(layout, lifetimes, true);
  if (!layout.is_placed) layout.places.assign(layout.trace.allocations.size(), std::nullopt);
}

bool StepLayouts::place(StepLayout& layout, std::span<const Lifetime> lifetimes,
                        bool may_grow) const {
  std::vector<Arena::Range> holes = arena_.holes();
  holes.resize(std::min(holes.size(), most_holes));
  std::vector<uint64_t> sizes;
  for (const Arena::Range& hole : holes) sizes.push_back(hole.size);
  const Layout solution = lay_out(lifetimes, sizes, largest_block_);
  if (!solution.regions.empty() && !may_grow) return false;
  if (solution.height() > lower_bound(lifetimes) * 5 / 4) return false;  // best fit does as well
  for (const uint64_t height : solution.regions) {
    const std::optional<uint32_t> block = grow_(height);
    if (!block) return false;
    holes.push_back({*block, 0, height});
  }
  const auto& allocations = layout.trace.allocations;
  layout.places.assign(allocations.size(), std::nullopt);
  auto next = solution.places.begin();
  for (size_t i = 0; i < allocations.size(); ++i) {
    if (!is_planned(layout.trace, allocations[i], largest_block_)) continue;
    const Arena::Range& hole = holes[next->space];
    layout.places[i] = {hole.block, hole.offset + next->offset};
    ++next;
  }
  return true;
}

}  // namespace rw
