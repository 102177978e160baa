// Steady state: a training step allocates the same sizes in the same order again and again. Their
// lifetimes are learnt once, offsets are solved offline (core/offset_plan.h) and followed while a
// step goes on like one that is known. Places are only proposals to the arena: where the program does
// something else, allocation is dynamic, correct but less tight.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/arena.h"
#include "core/offset_plan.h"

namespace rw {

class StepPlanner {
 public:
  // An allocation's place in the step that made it.
  struct Ticket {
    uint64_t step = 0;
    uint32_t index = 0;
  };
  struct Place {
    uint32_t block = 0;
    uint64_t offset = 0;
  };

  // The next allocation of this step: where it should lie, if a known step goes on like this one.
  std::optional<Place> propose(uint64_t size, Ticket& ticket);
  void missed() { ++misses_; }  // the place was taken
  void freed(const Ticket& ticket);

  // Ends the step. A step that is new is planned: `arena` shows the holes; `grow` adds a block of so
  // many bytes and returns its number (or nothing); `trim` removes blocks that are free.
  struct Memory {
    const Arena& arena;
    uint64_t largest_block;
    std::function<std::optional<uint32_t>(uint64_t)> grow;
    std::function<void()> trim;
  };
  void end_step(const Memory& memory);

  uint64_t followed_steps() const { return followed_steps_; }  // wholly, without a miss
  uint64_t planned_steps() const { return planned_steps_; }    // solved
  uint64_t all_misses() const { return all_misses_; }

 private:
  struct Allocation {
    uint64_t size = 0;
    uint32_t begin = 0, end = 0;  // end 0: alive
  };
  struct Plan {
    std::vector<uint64_t> prefixes;  // hash of all events up to each allocation
    std::vector<std::optional<Place>> places;
    uint64_t hash = 0, used = 0;  // `used`: number of the last step that was like it
    int attempts = 0;
    bool followed = false;
  };

  void mix(uint64_t value);
  bool worth_solving();
  void solve(Plan& plan, const Memory& memory);
  std::vector<Lifetime> dying() const;
  bool place(Plan& plan, std::span<const Lifetime> lifetimes, const Memory& memory, bool may_grow) const;

  std::vector<Allocation> step_;
  std::vector<uint64_t> prefixes_;
  uint64_t hash_ = 0, number_ = 1;
  uint32_t clock_ = 0;
  std::vector<std::unique_ptr<Plan>> plans_;  // few
  Plan* plan_ = nullptr;                      // followed now
  std::vector<uint64_t> seen_;                // hashes of the last steps that were not solved
  uint64_t need_ = 0;  // bytes that the largest of the planned steps cannot do without
  uint64_t misses_ = 0, all_misses_ = 0, followed_steps_ = 0, planned_steps_ = 0;
};

}  // namespace rw
