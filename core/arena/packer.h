// Packs lifetimes that meet into a line of addresses. Private to core/arena/layout.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "../base/range_max.h"
#include "address_line.h"
#include "lifetime.h"

namespace rw {

// Lifetimes that follow each other without a moment when nothing is alive. Their times are numbers
// of maximal cliques (the moments after which something ends): two items share a moment exactly
// when they share a clique.
struct Component {
  std::vector<Lifetime> items;  // by begin
  std::vector<uint32_t> ids;    // of the items, in the caller's order
  uint32_t cliques = 0;
  uint64_t lower = 0;  // lower bound
};

struct Packing {
  std::vector<uint64_t> addresses;
  uint64_t reach = UINT64_MAX;  // end of the highest item
};

// Sizes and addresses of a component, and of its line, stay below this.
constexpr uint64_t most_units = uint64_t{1} << 30;

// Packs one component. `work` counts down over all components.
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

}  // namespace rw
