// The memory of a device: blocks of its backend, the arenas in them, and the places that steps like
// the last ones were given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../backend/backend.h"
#include "arena.h"
#include "compaction.h"
#include "step_layouts.h"

namespace rw {

// All memory of a device. Sizes are in bytes. It is not safe for several threads, so the device's
// lock surrounds it.
class MemoryPool {
 public:
  // The arenas.
  enum class Part : uint8_t {
    steps,    // of memory that steps need
    lasting,  // of memory that outlives them
    host,     // of host memory
    outside,  // none: memory of the host that others own
  };
  // The result of take().
  struct Allocation {
    Arena::Range range;               // the range of memory
    StepLayouts::Ticket ticket = {};  // the allocation's number in its step
    Part part = Part::steps;          // the arena
    uint32_t pins = 0;                // how many hold its address: it does not move meanwhile
  };

  // Returns all places of the device's memory that are in use, where their owners keep them: values
  // there move when room is made.
  using Allocations = std::function<std::vector<Allocation*>()>;
  // Frees something and returns true, or returns false.
  using Reclaim = std::function<bool(uint64_t bytes)>;

  // `limit` is the most bytes of blocks; 0: no limit but the backend's.
  MemoryPool(Backend& backend, uint64_t limit, Allocations places);

  // Takes memory for `bytes`; `lasting` memory is known to outlive steps. If there is no hole and
  // no block can be added, values move, and if that does not help, `reclaim` is asked. Returns
  // nothing if neither the limits, which are those of the device's memory, nor the backend allow
  // it.
  std::optional<Allocation> take(uint64_t bytes, Part part, const Reclaim& reclaim = {});

  // Makes a place of memory of the host that others own (Backend::adopt_block), which no limit and
  // no account is about. Nothing: the backend takes none.
  std::optional<Allocation> adopt(const std::shared_ptr<std::byte>& memory, uint64_t bytes);

  void release(const Allocation& place);  // gives back the result of take() or adopt()
  void trim();                            // gives wholly free blocks back to the backend

  // Returns the bytes that an allocation of so many bytes takes.
  uint64_t size_of(uint64_t bytes) const { return std::max(arena_.round_up(bytes), alignment()); }

  uint64_t live() const { return arena_.live() + lasting_.live(); }              // padding included
  uint64_t reserved() const { return arena_.reserved() + lasting_.reserved(); }  // of blocks
  uint64_t host_live() const { return host_.live(); }          // the same of host memory
  uint64_t host_reserved() const { return host_.reserved(); }  // the same
  bool is_on_host(uint32_t block) const { return host_.has_block(block); }  // as allocated
  // The largest hole among the blocks of steps.
  uint64_t largest_hole() const { return arena_.largest_hole(); }

  std::vector<uint64_t> block_sizes() const;  // of the device, by number; 0: no such block

  // Returns the backend's message when it last had no memory.
  const std::string& refusal() const { return refusal_; }

  // Sets the most bytes of blocks, for the device and for a time; 0: no limit. Blocks above the
  // limit are given back, as far as live values allow.
  void set_limit(uint64_t bytes);
  void set_budget(uint64_t bytes);
  uint64_t limit() const { return limit_; }
  uint64_t budget() const { return budget_; }
  uint64_t most() const;  // the smaller of both; UINT64_MAX: neither is set
  uint64_t room() const;  // bytes of blocks that may still be added

  // Values that moved to make room since the pool was made.
  uint64_t moves() const { return moves_; }
  uint64_t moved() const { return moved_; }  // their bytes, since reset_peak()

  void end_step();    // a training step is over: see StepLayouts
  void reset_peak();  // the step's peak starts again

  // The layouts of known steps.
  StepLayouts& layouts() { return layouts_; }
  const StepLayouts& layouts() const { return layouts_; }

 private:
  uint64_t alignment() const { return backend_.info().alignment; }
  Arena& arena_of(Part part);
  std::optional<Arena::Range> take_apart(Arena& arena, uint64_t bytes);
  bool find(uint64_t bytes, std::optional<Arena::Range>& place, bool outlives, Allocation& taken);
  bool take_anywhere(uint64_t bytes, Allocation& taken);
  bool grow(uint64_t bytes);
  std::optional<uint32_t> add_block(Arena& arena, uint64_t bytes);
  static std::set<uint32_t> pinned_blocks(const std::vector<Allocation*>& places);
  void keep_within_limits();
  bool move(uint64_t size);
  bool move_afresh(uint64_t size);
  bool lay(const std::vector<Allocation*>& places, const std::vector<uint64_t>& blocks,
           const std::vector<Arena::Range>& ranges, std::optional<uint32_t> packed);

  Backend& backend_;
  Allocations places_;
  uint64_t limit_, budget_ = 0;
  Arena arena_;
  Arena lasting_;  // kept apart, so that it does not lie scattered among the memory of steps
  Arena host_;
  StepLayouts layouts_;
  std::string refusal_;
  uint64_t step_peak_ = 0, last_step_peak_ = 0;  // of live bytes
  uint64_t moves_ = 0, moved_ = 0;
};

}  // namespace rw
