// Where the memory of a device lies: blocks of its backend, the arenas in them, and the places that
// steps like the last ones were given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../backend/backend.h"
#include "arena.h"
#include "compaction.h"
#include "step_layouts.h"

namespace rw {

// All memory of a device. Sizes in bytes. Not safe for several threads: the device's lock is around
// it.
class MemoryPool {
 public:
  // Arenas.
  enum class Part : uint8_t {
    steps,    // of what steps need
    lasting,  // of what outlives them
    host,     // of host memory
  };
  // What take() gave.
  struct Place {
    Arena::Range range;               // where it lies
    StepLayouts::Ticket ticket = {};  // which allocation of its step it is
    Part part = Part::steps;          // in which arena
  };

  // All places of the device's memory that are in use, where their owners keep them: what lies
  // there moves when room is made.
  using Places = std::function<std::vector<Place*>()>;
  // Frees something and returns true, or returns false.
  using Reclaim = std::function<bool(uint64_t bytes)>;

  // `limit`: most bytes of blocks, 0: no limit but the backend's.
  MemoryPool(Backend& backend, uint64_t limit, Places places);

  // Memory for `bytes`; `lasting`: it is known to outlive steps. Where there is no hole and no
  // block can be added, what is there moves, and `reclaim` is asked where that does not do.
  // Nothing: neither the limits, which are of the device's memory, nor the backend allow it.
  std::optional<Place> take(uint64_t bytes, Part part, const Reclaim& reclaim = {});

  void release(const Place& place);  // gives back what take() gave
  void trim();                       // gives wholly free blocks back to the backend

  // What an allocation of so many bytes takes.
  uint64_t size_of(uint64_t bytes) const { return std::max(arena_.round_up(bytes), alignment()); }

  uint64_t live() const { return arena_.live() + lasting_.live(); }              // padding included
  uint64_t reserved() const { return arena_.reserved() + lasting_.reserved(); }  // of blocks
  uint64_t host_live() const { return host_.live(); }          // the same of host memory
  uint64_t host_reserved() const { return host_.reserved(); }  // the same
  // The largest hole among the blocks of steps.
  uint64_t largest_hole() const { return arena_.largest_hole(); }

  std::vector<uint64_t> block_sizes() const;  // the device's, by number; 0: no such block

  // What the backend said when it last had no memory.
  const std::string& refusal() const { return refusal_; }

  // Most bytes of blocks, of the device and for a time; 0: no limit. What is held above them is
  // given back, as far as what is live lets it be.
  void set_limit(uint64_t bytes);
  void set_budget(uint64_t bytes);
  uint64_t limit() const { return limit_; }
  uint64_t budget() const { return budget_; }
  uint64_t most() const;  // the smaller of both; UINT64_MAX: neither is set
  uint64_t room() const;  // bytes of blocks that may still be added

  uint64_t moves() const { return moves_; }  // values that moved to make room, ever
  uint64_t moved() const { return moved_; }  // their bytes, since reset_peak()

  void end_step();    // a training step is over: see StepLayouts
  void reset_peak();  // the step's peak starts again

  // What is known of steps.
  StepLayouts& layouts() { return layouts_; }
  const StepLayouts& layouts() const { return layouts_; }

 private:
  uint64_t alignment() const { return backend_.info().alignment; }
  Arena& arena_of(Part part);
  std::optional<Arena::Range> take_apart(Arena& arena, uint64_t bytes);
  bool find(uint64_t bytes, StepLayouts::Proposal& proposal, Place& taken);
  bool take_anywhere(uint64_t bytes, Place& taken);
  bool grow(uint64_t bytes);
  std::optional<uint32_t> add_block(Arena& arena, uint64_t bytes);
  void keep_within_limits();
  bool move(uint64_t size);
  bool move_afresh(uint64_t size);
  bool lay(const std::vector<Place*>& places, const FreshBlocks& fresh,
           std::optional<uint32_t> packed);

  Backend& backend_;
  Places places_;
  uint64_t limit_, budget_ = 0;
  Arena arena_;
  Arena lasting_;  // kept apart, so that it does not lie scattered in what steps need
  Arena host_;
  StepLayouts layouts_;
  std::string refusal_;
  uint64_t step_peak_ = 0, last_step_peak_ = 0;  // of live()
  uint64_t moves_ = 0, moved_ = 0;
};

}  // namespace rw
