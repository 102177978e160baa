// Where the memory of a device lies: blocks of its backend, the arenas in them, and the places that
// steps like the last ones were given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rewind/core/backend/backend.h"
#include "rewind/core/memory/arena.h"
#include "rewind/core/memory/step_layouts.h"

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

  // `limit`: most bytes of blocks, 0: no limit but the backend's.
  MemoryPool(Backend& backend, uint64_t limit);

  // Memory for `bytes`; `lasting`: it is known to outlive steps. Nothing: neither the limit, which
  // is of the device's memory, nor the backend allows it.
  std::optional<Place> take(uint64_t bytes, Part part);

  void release(const Place& place);  // gives back what take() gave
  void trim();                       // gives wholly free blocks back to the backend

  // What an allocation of so many bytes takes.
  uint64_t size_of(uint64_t bytes) const { return std::max(arena_.round_up(bytes), alignment()); }

  uint64_t live() const { return arena_.live() + lasting_.live(); }              // padding included
  uint64_t reserved() const { return arena_.reserved() + lasting_.reserved(); }  // of blocks
  uint64_t host_live() const { return host_.live(); }          // the same of host memory
  uint64_t host_reserved() const { return host_.reserved(); }  // the same
  // Of what steps use.
  uint64_t largest_hole() const { return arena_.largest_hole(); }

  std::vector<uint64_t> block_sizes() const;  // the device's, by number; 0: no such block

  // What the backend said when it last had no memory.
  const std::string& refusal() const { return refusal_; }

  uint64_t limit() const { return limit_; }           // of blocks; 0: none
  void set_limit(uint64_t bytes) { limit_ = bytes; }  // of blocks to come; 0: none

  void end_step();                            // a training step is over: see StepLayouts
  void reset_peak() { step_peak_ = live(); }  // the step's peak starts again

  // What is known of steps.
  StepLayouts& layouts() { return layouts_; }
  const StepLayouts& layouts() const { return layouts_; }

 private:
  uint64_t alignment() const { return backend_.info().alignment; }
  Arena& arena_of(Part part);
  std::optional<Arena::Range> take_apart(Arena& arena, uint64_t bytes);
  std::optional<Arena::Range> take_anywhere(uint64_t bytes);
  bool grow(uint64_t bytes);
  std::optional<uint32_t> add_block(Arena& arena, uint64_t bytes);
  uint64_t room() const;  // bytes of blocks that the limit still allows

  Backend& backend_;
  uint64_t limit_;
  Arena arena_;
  Arena lasting_;  // kept apart, so that it does not lie scattered in what steps need
  Arena host_;
  StepLayouts layouts_;
  std::string refusal_;
  uint64_t step_peak_ = 0, last_step_peak_ = 0;  // of live()
};

}  // namespace rw
