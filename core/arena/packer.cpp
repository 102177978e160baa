// Sources. Packing upwards from the lowest free place is best fit by Sekiyama et al.,
// "Profile-guided memory optimization for deep neural networks" (2018). Choosing only among
// placements below which nothing else fits, and giving up when the bytes that still wait exceed the
// capacity, are the canonical solutions and the section inference of Moffitt, "MiniMalloc" (2023).
// Raising the priority of what got in the way and packing again is "squeaky wheel" optimization by
// Joslin and Clements (1999).
#include "core/arena/packer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <span>
#include <tuple>

#include "core/arena/arena.h"
#include "core/base/hash.h"
#include "core/base/range_max.h"
#include "core/base/vector_versions.h"

namespace rw {

namespace {

bool overlap(const Lifetime& a, const Lifetime& b) {
  return a.begin < b.end && b.begin < a.end;
}

// Columns of Queue.
struct Columns {
  int32_t* address;
  const int32_t *size, *begin, *end;
  size_t count;
};

// Lifts to `top` whatever shares a moment of [placed_begin, placed_end) and lies lower. It has no
// branches, so that compilers vectorize it: overlaps are hard to predict.
REWIND_VECTOR_VERSIONS void lift(const Columns& c, int32_t top, int32_t placed_begin,
                                 int32_t placed_end) {
  const auto [address, size, begin, end, count] = c;
  for (size_t i = 0; i < count; ++i) {
    const bool lifted = (address[i] < top) & (begin[i] < placed_end) & (placed_begin < end[i]);
    address[i] = lifted ? top : address[i];
  }
}

// Whether any item at `address` is larger than `room`.
REWIND_VECTOR_VERSIONS bool any_crosses(const Columns& c, int32_t address, int32_t room) {
  int32_t any = 0;
  for (size_t i = 0; i < c.count; ++i) any |= (c.address[i] == address) & (c.size[i] > room);
  return any != 0;
}

// The lowest end of any item.
REWIND_VECTOR_VERSIONS int32_t lowest_top(const Columns& c) {
  int32_t lowest = INT32_MAX;
  for (size_t i = 0; i < c.count; ++i) lowest = std::min(lowest, c.address[i] + c.size[i]);
  return lowest;
}

// 65536 log2(x), piecewise linear between powers of two. x > 0.
uint64_t log2_fixed(uint64_t x) {
  const int exponent = std::bit_width(x) - 1;
  const uint64_t mantissa = exponent > 16 ? x >> (exponent - 16) : x << (16 - exponent);
  return (uint64_t(exponent) << 16) + mantissa - (1 << 16);
}

// Lifts, for RangeMax.
struct Highest {
  int64_t operator()(int64_t a, int64_t b) const { return std::max(a, b); }
};

class Packer {
 public:
  Packer(const Component& component, const AddressLine& line, uint64_t target, uint64_t& work)
      : items_(component.items),
        cliques_(component.cliques),
        line_(line),
        target_(target),
        work_(work) {}

  Packing run();

 private:
  static constexpr uint32_t most_exact = 10;  // items that are searched to the end

  // An item of a small set that is not placed yet.
  struct Waiting {
    Lifetime life;
    uint32_t item = 0;
    uint64_t address = 0;  // the lowest place above the placed items
    uint64_t top() const { return address + life.size; }
  };
  using Priorities = std::vector<uint64_t>;

  // Items of a large set that are not placed yet, by priority. Columns of 32 bits, as most of the
  // time goes to raise().
  struct Queue {
    std::vector<int32_t> address;  // the lowest place above the placed items
    std::vector<int32_t> size, begin, end;
    std::vector<uint32_t> item;
    size_t count() const { return item.size(); }
    void push(uint32_t number, const Lifetime& life, uint64_t at);
    void erase(size_t i);
  };

  // Always takes the item that can lie lowest, and the largest area first among equals. This is
  // cheap for sets of any size. Once the work is used up, addresses that others have raised are
  // taken as they are.
  void pack_upwards();
  // Best fit in the order of time, as the arena does it. This is cheap, too, and optimal if many
  // sizes are equal: a freed place fits the next item.
  Packing pack_in_order() const;
  // Packs with three orders again and again, raising the priority of items that did not fit.
  void pack_repeatedly();
  // Makes one packing below best_.reach: it takes the item of highest priority among those that may
  // come next and leave room for the rest. If none does, the capacity grows by the least that
  // helps. False if it grew too much; `priorities` rise where it had to grow.
  bool pack_below(uint64_t capacity, Priorities& priorities);
  size_t choose(const Queue& waiting, const RangeMax<std::plus<>>& load, int32_t limit,
                uint64_t& capacity, bool& grew);
  // Takes the chosen item out and lifts those above it. Returns the lowest top that is left.
  int32_t raise(Queue& waiting, size_t chosen);
  // Tries every packing in which no item could lie lower, from low addresses to high ones.
  void pack_exactly();
  // A packing in progress. Waiting items go above (last, last_item) in the order of addresses.
  struct Branch {
    std::array<Waiting, most_exact> items;
    uint32_t waiting = 0;  // bit i stands for item i
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

}  // namespace

Packing Packer::run() {
  pack_upwards();
  if (items_.size() <= most_exact) {
    pack_exactly();
  } else if (items_.size() * items_.size() / 2 < work_) {
    pack_repeatedly();
  }
  if (best_.reach > target_)
    if (Packing in_order = pack_in_order(); in_order.reach < best_.reach) return in_order;
  return std::move(best_);
}

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

Packing Packer::pack_in_order() const {
  Arena arena(1);
  std::vector<uint64_t> blocks;  // their addresses
  const auto add_block = [&](uint64_t address, uint64_t size) {
    if (size > 0) arena.add_block(static_cast<uint32_t>(blocks.size()), size);
    blocks.push_back(address);
  };
  line_.for_each_hole(add_block);
  const size_t holes = blocks.size();

  std::vector<uint32_t> by_end(items_.size());
  std::iota(by_end.begin(), by_end.end(), 0u);
  std::ranges::stable_sort(by_end, {}, [&](uint32_t i) { return items_[i].end; });
  std::vector<Arena::Range> ranges;
  Packing packing{{}, 0};
  for (auto ends = by_end.begin(); const auto& [size, begin, end] : items_) {
    for (; items_[*ends].end <= begin; ++ends) arena.free(ranges[*ends]);
    std::optional<Arena::Range> range = arena.allocate(size);
    if (!range) {
      add_block(line_.holes_end() + (blocks.size() - holes) * line_.region(), line_.region());
      range = arena.allocate(size);
    }
    ranges.push_back(*range);
    packing.addresses.push_back(blocks[range->block] + range->offset);
    packing.reach = std::max(packing.reach, packing.addresses.back() + size);
  }
  return packing;
}

void Packer::pack_repeatedly() {
  std::array<Priorities, 3> priorities;  // area, time, size
  for (const auto& [size, begin, end] : items_) {
    const uint64_t log_size = log2_fixed(size), log_time = log2_fixed(end - begin);
    priorities[0].push_back(log_size + log_time);
    priorities[1].push_back(log_time);
    priorities[2].push_back(log_size);
  }
  // Aiming between the target and the result so far gets further than aiming at one of them.
  for (uint64_t pass = 0; best_.reach > target_ && work_ > 0; ++pass) {
    const uint64_t quarters = 3 - pass / 3 % 4;
    const uint64_t capacity = target_ + (best_.reach - 1 - target_) / 4 * (quarters + 1);
    pack_below(capacity, priorities[pass % 3]);
  }
}

bool Packer::pack_below(uint64_t capacity, Priorities& priorities) {
  spend(16 * items_.size());
  Queue waiting;
  RangeMax<std::plus<>> load(cliques_);  // bytes that wait
  std::vector<uint32_t> order(items_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::greater<>(), [&](uint32_t i) { return priorities[i]; });
  int32_t limit = INT32_MAX;
  for (const uint32_t i : order) {
    const uint64_t lowest = line_.lowest(0, items_[i].size);
    waiting.push(i, items_[i], lowest);
    load.change(items_[i].begin, items_[i].end, items_[i].size);
    limit = std::min(limit, static_cast<int32_t>(lowest + items_[i].size));
  }
  Packing packing{std::vector<uint64_t>(items_.size()), 0};
  while (waiting.count() > 0) {
    bool grew = false;
    const size_t chosen = choose(waiting, load, limit, capacity, grew);
    const uint32_t item = waiting.item[chosen];
    const Lifetime& life = items_[item];
    const auto address = static_cast<uint64_t>(waiting.address[chosen]);
    if (grew) {
      for (size_t i = 0; i < waiting.count(); ++i)
        if (overlap(items_[waiting.item[i]], life) && waiting.address[i] < limit)
          priorities[waiting.item[i]] += splitmix64(random_++ * splitmix64_step) % step_;
      if (capacity >= best_.reach) return false;
    }
    spend(16 + waiting.count());
    if (work_ == 0) return false;
    packing.addresses[item] = address;
    packing.reach = std::max(packing.reach, address + life.size);
    load.change(life.begin, life.end, -static_cast<int64_t>(life.size));
    limit = raise(waiting, chosen);
  }
  best_ = std::move(packing);
  return true;
}

void Packer::Queue::push(uint32_t number, const Lifetime& life, uint64_t at) {
  address.push_back(static_cast<int32_t>(at));
  size.push_back(static_cast<int32_t>(life.size));
  begin.push_back(static_cast<int32_t>(life.begin));
  end.push_back(static_cast<int32_t>(life.end));
  item.push_back(number);
}

void Packer::Queue::erase(size_t i) {
  const auto at = static_cast<std::ptrdiff_t>(i);
  for (auto* column : {&address, &size, &begin, &end}) column->erase(column->begin() + at);
  item.erase(item.begin() + at);
}

int32_t Packer::raise(Queue& waiting, size_t chosen) {
  const int32_t top = waiting.address[chosen] + waiting.size[chosen];
  const int32_t placed_begin = waiting.begin[chosen], placed_end = waiting.end[chosen];
  waiting.erase(chosen);
  const Columns columns{waiting.address.data(), waiting.size.data(), waiting.begin.data(),
                        waiting.end.data(), waiting.count()};
  lift(columns, top, placed_begin, placed_end);
  if (line_.has_borders()) {
    const auto room = static_cast<int32_t>(line_.room(static_cast<uint64_t>(top)));
    const bool any = any_crosses(columns, top, room);
    for (size_t i = 0; any && i < columns.count; ++i)
      if (columns.address[i] == top && columns.size[i] > room)
        columns.address[i] = static_cast<int32_t>(
            line_.lowest(static_cast<uint64_t>(top), static_cast<uint64_t>(columns.size[i])));
  }
  return lowest_top(columns);
}

size_t Packer::choose(const Queue& waiting, const RangeMax<std::plus<>>& load, int32_t limit,
                      uint64_t& capacity, bool& grew) {
  size_t least = 0;
  uint64_t least_needed = UINT64_MAX;
  for (size_t i = 0; i < waiting.count(); ++i) {
    if (waiting.address[i] >= limit) continue;  // something else fits below it
    const Lifetime& life = items_[waiting.item[i]];
    const uint64_t needed =
        static_cast<uint64_t>(waiting.address[i] + load.max(life.begin, life.end));
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

// The waiting items of one clique need their sizes above the lowest place that any of them can
// take.
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

Packing pack(const Component& component, const AddressLine& line, uint64_t target, uint64_t& work) {
  return Packer(component, line, target, work).run();
}

}  // namespace rw
