// Steady state: a training step allocates the same sizes in the same order again and again. Their
// lifetimes are learnt once, offsets are solved offline (core/arena/layout.h) and followed
// while a step goes on like one that is known. Places are only proposals to the arena: where the
// program does something else, allocation is dynamic, correct but less tight.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "arena.h"
#include "layout.h"

namespace rw {

// The allocations of one step.
struct StepTrace {
  // One of them, by its lifetime.
  struct Allocation {
    uint64_t size = 0;   // bytes, rounded up
    uint32_t end = 0;    // allocations that came before it was freed; 0: it outlives the step
    bool wraps = false;  // it outlives the step and dies in the midst of the next: gradients where
                         // zero_grad() comes after the forward
    bool stays = false;  // it was seen to be alive still when the next step had made its successor
  };
  std::vector<Allocation> allocations;
  std::vector<uint64_t> prefixes;  // by allocation: hash of all events up to it
  uint64_t hash = 0;               // of all events
  bool is_first = false;           // of its device: what outlives it stays
};

// Learns steps, and says where the allocations of those that come again are to lie.
class StepLayouts {
 public:
  // What is planned: the ranges of `arena`, whose blocks have at most `largest_block` bytes. `grow`
  // adds a block of so many bytes and returns its number (or nothing); `trim` removes blocks that
  // are free.
  struct Memory {
    const Arena& arena;
    uint64_t largest_block;
    std::function<std::optional<uint32_t>(uint64_t)> grow;
    std::function<void()> trim;
  };

  explicit StepLayouts(Memory memory) : memory_(std::move(memory)) {}

  // An allocation's place in the step that made it: the number of that step, and its index there.
  struct Ticket {
    uint64_t step = 0;
    uint32_t index = 0;
  };
  // Where it lies: `offset` bytes from the start of a block.
  struct Place {
    uint32_t block = 0;
    uint64_t offset = 0;
  };

  // Where an allocation should lie.
  struct Proposal {
    std::optional<Place> place;  // none: anywhere
    bool outlives = false;  // small, and there still when other steps begin: it lies best apart
  };

  // The next allocation of this step, of so many bytes that take `size`: where it should lie, if a
  // known step goes on like this one.
  Proposal propose(uint64_t bytes, uint64_t size, Ticket& ticket);

  void missed() { ++misses_; }       // the place was taken
  void freed(const Ticket& ticket);  // the allocation is gone
  void end_step();                   // a step that is new is planned when the next one begins
  void set_solves(bool on) { solves_ = on; }  // false: steps are remembered and stay dynamic

  std::vector<StepTrace> traces() const;      // of the steps that are planned or remembered
  void learn(std::vector<StepTrace> traces);  // steps to come: they are followed from the first on

  uint64_t followed_steps() const { return followed_steps_; }  // wholly, without a miss
  uint64_t all_misses() const { return all_misses_; }          // of all complete steps

 private:
  struct StepLayout {
    StepTrace trace;
    std::vector<std::optional<Place>> places = {};  // empty: not solved yet
    uint64_t used = 0;                              // number of the last step that was like it
    int attempts = 0;
    bool is_placed = false, followed = false;
    bool is_stale = false;  // more is known of its lifetimes than its places were made for
  };

  void mix(uint64_t value);
  void forget_step();
  bool worth_solving();
  void follow(size_t index);
  void solve_new();
  StepLayout& add(StepTrace trace);
  void outlived(uint32_t index);
  void solve(StepLayout& layout);
  bool place(StepLayout& layout, std::span<const Lifetime> lifetimes, bool may_grow) const;

  Memory memory_;
  StepTrace step_;           // so far
  bool is_endless_ = false;  // nobody ends it (a loop of inferences): it is not learnt
  uint64_t number_ = 1;
  uint64_t frees_ = 0;  // hash of what was freed since the last allocation
  std::vector<std::unique_ptr<StepLayout>> known_;  // tens at most
  StepLayout* followed_ = nullptr;                  // followed now
  StepLayout* last_ = nullptr;                      // of the step before
  std::vector<uint64_t> seen_;                      // hashes of the last steps that were not solved
  uint64_t need_ = 0;  // bytes that the largest of the planned steps cannot do without
  bool solves_ = true;
  uint64_t misses_ = 0, all_misses_ = 0, followed_steps_ = 0;
};

}  // namespace rw
