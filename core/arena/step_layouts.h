// Steady state: a training step allocates the same sizes in the same order again and again. Their
// lifetimes are learnt once, offsets are solved offline (core/arena/layout.h) and followed while a
// step continues like a known one. Places are only proposals to the arena: where the program does
// something else, allocation is dynamic, which is correct but less tight.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "arena.h"
#include "layout.h"

namespace rw {

// The allocations of one step.
struct StepTrace {
  // An allocation, by its lifetime.
  struct Allocation {
    uint64_t size = 0;  // bytes, rounded up
    uint32_t end = 0;   // allocations that came before it was freed; 0: it outlives the step
    // It outlives the step and dies during the next one: gradients if zero_grad() comes after the
    // forward.
    bool wraps = false;
    bool stays = false;  // it was still alive when the next step had made its successor
  };
  std::vector<Allocation> allocations;
  std::vector<uint64_t> prefixes;  // by allocation: hash of all events up to it
  uint64_t hash = 0;               // of all events
  bool is_first = false;           // of its device: tensors that outlive it stay
};

// Learns steps, and says where the allocations of those that repeat are to lie.
class StepLayouts {
 public:
  // Adds a block of so many bytes and returns its number, or nothing.
  using Grow = std::function<std::optional<uint32_t>(uint64_t bytes)>;

  // The memory that is planned is that of `arena`, whose blocks have at most `largest_block` bytes.
  // `trim` removes free blocks.
  StepLayouts(const Arena& arena, uint64_t largest_block, Grow grow, std::function<void()> trim);
  ~StepLayouts();

  // An allocation's place in the step that made it: the number of that step, and its index there.
  struct Ticket {
    uint64_t step = 0;
    uint32_t index = 0;
  };

  // Proposes a place for the next allocation of this step, of so many bytes that take `size`, if a
  // known step continues like this one; empty: anywhere. Second: it is small, and still there when
  // other steps begin, so it is best kept apart.
  std::pair<std::optional<Arena::Range>, bool> propose(uint64_t bytes, uint64_t size,
                                                       Ticket& ticket);

  void missed() { ++misses_; }                // the place was taken
  void freed(const Ticket& ticket);           // the allocation is gone
  void end_step();                            // a new step is planned when the next one begins
  void set_solves(bool on) { solves_ = on; }  // false: steps are remembered and stay dynamic

  std::vector<StepTrace> traces() const;  // of the steps that are planned or remembered
  // Learns steps to come, which are followed from the first one on.
  void learn(std::vector<StepTrace> traces);

  // Steps followed as a whole, without a miss.
  uint64_t followed_steps() const { return followed_steps_; }
  uint64_t all_misses() const { return all_misses_; }  // in all complete steps

 private:
  struct StepLayout;

  void mix(uint64_t value);
  void forget_step();
  bool worth_solving();
  void follow(size_t index);
  void solve_new();
  StepLayout& add(StepTrace trace);
  void outlived(uint32_t index);
  void solve(StepLayout& layout);
  bool place(StepLayout& layout, std::span<const Lifetime> lifetimes, bool may_grow) const;

  const Arena& arena_;
  const uint64_t largest_block_;
  const Grow grow_;
  const std::function<void()> trim_;
  StepTrace step_;           // the current step so far
  bool is_endless_ = false;  // nobody ends the step (a loop of inferences), so it is not learnt
  uint64_t number_ = 1;
  uint64_t frees_ = 0;                              // hash of the frees since the last allocation
  std::vector<std::unique_ptr<StepLayout>> known_;  // a few dozen at most
  StepLayout* followed_ = nullptr;                  // the step that is followed now
  StepLayout* last_ = nullptr;                      // the previous step's
  std::vector<uint64_t> seen_;                      // hashes of the last steps that were not solved
  uint64_t need_ = 0;  // bytes without which the largest of the planned steps cannot do
  bool solves_ = true;
  uint64_t misses_ = 0, all_misses_ = 0, followed_steps_ = 0;
};

}  // namespace rw
