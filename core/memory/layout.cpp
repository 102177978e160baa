// Sources. Packing upwards from the lowest free place is best fit by Sekiyama et al.,
// "Profile-guided memory optimization for deep neural networks" (2018). Choosing only among
// placements below which nothing else fits, and giving up where the bytes that are still to come
// exceed the capacity, are the canonical solutions and the section inference of Moffitt,
// "MiniMalloc" (2023). Raising the priority of what got in the way and packing again is "squeaky
// wheel" optimization by Joslin and Clements (1999).
#include "rewind/core/memory/layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "rewind/core/base/error.h"
#include "rewind/core/base/hash.h"
#include "rewind/core/base/range_max.h"
#include "rewind/core/memory/address_line.h"

namespace rw {

namespace {

constexpr uint32_t exact_items = 10;  // so many are searched to the end

// Lifetimes that follow each other without a moment when nothing is alive. Their times are numbers
// of maximal cliques (the moments after which something ends): two items share a moment exactly
// when they share a clique.
struct Component {
  std::vector<Lifetime> items;
  std::vector<uint32_t> ids;  // of the items, in the caller's order
  uint32_t cliques = 0;
  uint64_t lower = 0;  // lower bound
};

struct Packing {
  std::vector<uint64_t> addresses;
  uint64_t reach = UINT64_MAX;  // end of the highest item
};

bool overlap(const Lifetime& a, const Lifetime& b) {
  return a.begin < b.end && b.begin < a.end;
}

// 65536 log2(x), with straight lines between powers of two. x > 0.
uint64_t log2_fixed(uint64_t x) {
  const int exponent = std::bit_width(x) - 1;
  const uint64_t mantissa = exponent > 16 ? x >> (exponent - 16) : x << (16 - exponent);
  return (uint64_t(exponent) << 16) + mantissa - (1 << 16);
}

// Packs one component. `work` counts down over all components.
class Packer {
 public:
  Packer(const Component& component, const AddressLine& line, uint64_t target, uint64_t& work)
      : items_(component.items),
        cliques_(component.cliques),
        line_(line),
        target_(target),
        work_(work) {}

  Packing run() {
    pack_upwards();
    if (items_.size() <= exact_items) {
      pack_exactly();
    } else if (items_.size() * items_.size() / 2 < work_) {
      pack_repeatedly();
    }
    return std::move(best_);
  }

 private:
  // An item that is not placed yet.
  struct Waiting {
    Lifetime life;
    uint32_t item = 0;
    uint64_t address = 0;  // lowest place above what is placed
    uint64_t top() const { return address + life.size; }
  };
  using Priorities = std::vector<uint64_t>;

  // Always takes the item that can lie lowest, the largest area first among equals. Cheap: for sets
  // of any size. Once the work is used up, addresses that others have raised are taken as they are.
  void pack_upwards();
  // Packs with three orders again and again, raising the priority of what got in the way.
  void pack_repeatedly();
  // One packing below best_.reach: the item of highest priority among those that may come next and
  // leave room for what is still to come. Where none does, the capacity grows by the least that
  // helps. False if it grew too much; `priorities` are raised where it had to grow.
  bool pack_below(uint64_t capacity, Priorities& priorities);
  size_t choose(const std::vector<Waiting>& waiting, const RangeMax<std::plus<>>& load,
                uint64_t limit, uint64_t& capacity, bool& grew);
  // Tries every packing in which no item could lie lower, from low addresses to high ones.
  // Takes the chosen item out and lifts those above it. The lowest top that is left.
  uint64_t raise(std::vector<Waiting>& waiting, size_t chosen);
  void pack_exactly();
  // A packing in the making. What waits goes above (last, last_item) in the order of addresses.
  struct Branch {
    std::array<Waiting, exact_items> items;
    uint32_t waiting = 0;  // bit i: item i
    uint64_t last = 0;
    uint32_t last_item = 0;
    uint64_t reach = 0;
    bool waits(uint32_t item) const { return waiting >> item & 1; }
  };
  void search(const Branch& branch);
  uint64_t least_reach(const Branch& branch) const;

  void spend(uint64_t steps) { work_ -= std::min(work_, steps); }

  std::span<const Lifetime> items_;
  uint32_t cliques_;
  const AddressLine& line_;
  uint64_t target_;
  uint64_t& work_;
  Packing best_;
  uint64_t random_ = 0;
  // Priorities of small sets rise by up to a factor of 1.5; larger sets get fewer passes.
  const uint64_t step_ = 38000 * (1 + items_.size() / 500);
};

void Packer::pack_upwards() {
  std::vector<uint32_t> order(items_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::greater<>(), [&](uint32_t i) {
    return log2_fixed(items_[i].size) + log2_fixed(items_[i].end - items_[i].begin);
  });
  using Entry = std::tuple<uint64_t, uint32_t>;  // address, place in the order
  std::vector<Entry> entries;
  for (uint32_t rank = 0; rank < order.size(); ++rank)
    entries.emplace_back(line_.lowest(0, items_[order[rank]].size), rank);
  std::priority_queue queue(std::greater<>(), std::move(entries));

  RangeMax<Highest> skyline(cliques_);
  best_ = {std::vector<uint64_t>(items_.size()), 0};
  size_t retries = 16 * items_.size();
  while (!queue.empty()) {
    const auto [address, rank] = queue.top();
    queue.pop();
    const uint32_t item = order[rank];
    const auto& [size, begin, end] = items_[item];
    const uint64_t now = line_.lowest(skyline.max(begin, end), size);
    if (now != address && retries > 0) {
      --retries;
      queue.emplace(now, rank);
      continue;
    }
    best_.addresses[item] = now;
    best_.reach = std::max(best_.reach, now + size);
    skyline.change(begin, end, now + size);
  }
}

void Packer::pack_repeatedly() {
  std::array<Priorities, 3> priorities;  // area, time, size
  for (const auto& [size, begin, end] : items_) {
    const uint64_t log_size = log2_fixed(size), log_time = log2_fixed(end - begin);
    priorities[0].push_back(log_size + log_time);
    priorities[1].push_back(log_time);
    priorities[2].push_back(log_size);
  }
  // Aiming between the target and what was reached gets further than aiming at one of them.
  for (uint64_t pass = 0; best_.reach > target_ && work_ > 0; ++pass) {
    const uint64_t quarters = 3 - pass / 3 % 4;
    const uint64_t capacity = target_ + (best_.reach - 1 - target_) / 4 * (quarters + 1);
    pack_below(capacity, priorities[pass % 3]);
  }
}

bool Packer::pack_below(uint64_t capacity, Priorities& priorities) {
  spend(16 * items_.size());
  std::vector<Waiting> waiting;
  RangeMax<std::plus<>> load(cliques_);  // bytes that wait
  for (uint32_t i = 0; i < items_.size(); ++i) {
    waiting.push_back({items_[i], i, line_.lowest(0, items_[i].size)});
    load.change(items_[i].begin, items_[i].end, items_[i].size);
  }
  std::ranges::stable_sort(waiting, std::greater<>(),
                           [&](const Waiting& w) { return priorities[w.item]; });
  Packing packing{std::vector<uint64_t>(items_.size()), 0};
  uint64_t limit = 0;
  for (const Waiting& w : waiting) limit = limit ? std::min(limit, w.top()) : w.top();
  while (!waiting.empty()) {
    bool grew = false;
    const size_t chosen = choose(waiting, load, limit, capacity, grew);
    const Waiting placed = waiting[chosen];
    if (grew) {
      for (const Waiting& w : waiting)
        if (overlap(w.life, placed.life) && w.address < limit)
          priorities[w.item] += splitmix64(random_++ * splitmix64_step) % step_;
      if (capacity >= best_.reach) return false;
    }
    spend(16 + waiting.size());
    if (work_ == 0) return false;
    packing.addresses[placed.item] = placed.address;
    packing.reach = std::max(packing.reach, placed.top());
    load.change(placed.life.begin, placed.life.end, -static_cast<int64_t>(placed.life.size));
    limit = raise(waiting, chosen);
  }
  best_ = std::move(packing);
  return true;
}

uint64_t Packer::raise(std::vector<Waiting>& waiting, size_t chosen) {
  const Waiting placed = waiting[chosen];
  const uint64_t top = placed.top();
  const bool borders = line_.has_borders();
  waiting.erase(waiting.begin() + chosen);
  uint64_t limit = UINT64_MAX;
  for (Waiting& w : waiting) {
    // No branches: this loop is where the time goes, and overlaps are hard to foretell.
    const bool raised =
        (w.address < top) & (w.life.begin < placed.life.end) & (placed.life.begin < w.life.end);
    w.address = raised ? top : w.address;
    if (borders) w.address = line_.lowest(w.address, w.life.size);
    limit = std::min(limit, w.top());
  }
  return limit;
}

size_t Packer::choose(const std::vector<Waiting>& waiting, const RangeMax<std::plus<>>& load,
                      uint64_t limit, uint64_t& capacity, bool& grew) {
  size_t least = 0;
  uint64_t least_needed = UINT64_MAX;
  for (size_t i = 0; i < waiting.size(); ++i) {
    const Waiting& w = waiting[i];
    if (w.address >= limit) continue;  // something else fits below it
    const uint64_t needed = w.address + load.max(w.life.begin, w.life.end);
    spend(16);
    if (needed <= capacity) return i;
    if (needed < least_needed) least_needed = needed, least = i;
  }
  capacity = least_needed;
  grew = true;
  return least;
}

void Packer::pack_exactly() {
  Branch root;
  for (uint32_t i = 0; i < items_.size(); ++i) {
    root.items[i] = {items_[i], i, line_.lowest(0, items_[i].size)};
    root.waiting |= 1u << i;
  }
  search(root);
}

void Packer::search(const Branch& branch) {
  if (best_.reach <= target_ || work_ == 0 || least_reach(branch) >= best_.reach) return;
  spend(items_.size() * items_.size());
  const auto n = static_cast<uint32_t>(items_.size());
  if (branch.waiting == 0) {
    for (uint32_t i = 0; i < n; ++i) best_.addresses[i] = branch.items[i].address;
    best_.reach = branch.reach;
    return;
  }
  uint64_t limit = UINT64_MAX;
  for (uint32_t i = 0; i < n; ++i)
    if (branch.waits(i)) limit = std::min(limit, branch.items[i].top());
  for (uint32_t i = 0; i < n; ++i) {
    const Waiting& placed = branch.items[i];
    const bool ascends = std::tuple(placed.address, i) >= std::tuple(branch.last, branch.last_item);
    if (!branch.waits(i) || !ascends || placed.address >= limit) continue;
    Branch next = branch;
    next.waiting &= ~(1u << i);
    next.last = placed.address;
    next.last_item = i;
    next.reach = std::max(branch.reach, placed.top());
    for (uint32_t j = 0; j < n; ++j) {
      Waiting& w = next.items[j];
      if (next.waits(j) && w.address < placed.top() && overlap(w.life, placed.life))
        w.address = line_.lowest(placed.top(), w.life.size);
    }
    search(next);
  }
}

// What waits in one clique needs its sizes above the lowest place any of it can take.
uint64_t Packer::least_reach(const Branch& branch) const {
  uint64_t reach = branch.reach;
  for (uint32_t clique = 0; clique < cliques_; ++clique) {
    uint64_t lowest = UINT64_MAX, bytes = 0;
    for (uint32_t i = 0; i < items_.size(); ++i) {
      const Waiting& w = branch.items[i];
      if (!branch.waits(i) || w.life.begin > clique || w.life.end <= clique) continue;
      lowest = std::min(lowest, std::max(w.address, branch.last));
      bytes += w.life.size;
    }
    if (bytes > 0) reach = std::max(reach, lowest + bytes);
  }
  return reach;
}

struct Event {
  uint32_t time;
  bool begins;  // ends come first: lifetimes are half open
  uint32_t id;
  auto operator<=>(const Event&) const = default;
};

std::vector<Event> sorted_events(std::span<const Lifetime> lifetimes) {
  std::vector<Event> events;
  for (uint32_t i = 0; i < lifetimes.size(); ++i) {
    events.push_back({lifetimes[i].begin, true, i});
    events.push_back({lifetimes[i].end, false, i});
  }
  std::ranges::sort(events);
  return events;
}

// Those with the largest lower bounds first.
std::vector<Component> split(std::span<const Lifetime> lifetimes) {
  std::vector<Component> components;
  std::vector<uint32_t> place(lifetimes.size());  // in its component
  uint32_t alive = 0;
  bool growing = false;  // something began after the last clique
  for (const auto& [time, begins, id] : sorted_events(lifetimes)) {
    if (begins) {
      if (alive++ == 0) components.emplace_back();
      Component& c = components.back();
      place[id] = static_cast<uint32_t>(c.items.size());
      c.items.push_back({lifetimes[id].size, c.cliques, 0});
      c.ids.push_back(id);
      growing = true;
    } else {
      Component& c = components.back();
      if (growing) ++c.cliques;
      growing = false;
      c.items[place[id]].end = c.cliques;
      --alive;
    }
  }
  for (Component& c : components) c.lower = lower_bound(c.items);
  std::ranges::stable_sort(components, std::greater<>(), &Component::lower);
  return components;
}

void check_input(std::span<const Lifetime> lifetimes, uint64_t max_region, uint64_t& total) {
  for (const auto& [size, begin, end] : lifetimes) {
    check(size > 0 && begin < end, "lay_out",
          "a lifetime must have bytes and end after it begins, got {} bytes alive in [{}, {})",
          size, begin, end);
    check(size <= max_region, "lay_out",
          "a lifetime must fit in a region of {} bytes, got {} bytes", max_region, size);
    check(size <= max_total - total, "lay_out", "sizes must add up to less than {} bytes",
          max_total);
    total += size;
  }
}

}  // namespace

uint64_t Layout::height() const {
  return std::accumulate(regions.begin(), regions.end(), uint64_t{0});
}

uint64_t lower_bound(std::span<const Lifetime> lifetimes) {
  uint64_t live = 0, most = 0;
  for (const auto& [time, begins, id] : sorted_events(lifetimes)) {
    live += begins ? lifetimes[id].size : -lifetimes[id].size;
    most = std::max(most, live);
  }
  return most;
}

Layout lay_out(std::span<const Lifetime> lifetimes, std::span<const uint64_t> holes,
               uint64_t max_region) {
  uint64_t total = 0;
  check_input(lifetimes, max_region, total);
  const AddressLine line(holes, max_region, std::max(total, uint64_t{1}));

  uint64_t work = std::min<uint64_t>(10'000'000 + 12'000 * lifetimes.size(), 500'000'000);
  uint64_t reach = line.holes_end();  // what lies in holes costs nothing
  Layout plan;
  plan.places.resize(lifetimes.size());
  for (const Component& component : split(lifetimes)) {
    const uint64_t target = std::max(reach, component.lower);
    const Packing packing = Packer(component, line, target, work).run();
    reach = std::max(reach, packing.reach);
    for (size_t i = 0; i < component.ids.size(); ++i) {
      const AddressLine::Place place = line.place(packing.addresses[i]);
      plan.places[component.ids[i]] = {place.space, place.offset};
    }
  }
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const auto [space, offset] = plan.places[i];
    if (space < holes.size()) continue;
    const size_t region = space - holes.size();
    if (region >= plan.regions.size()) plan.regions.resize(region + 1);
    plan.regions[region] = std::max(plan.regions[region], offset + lifetimes[i].size);
  }
  return plan;
}

}  // namespace rw
