// Offsets in blocks: best fit with coalescing over blocks. It works on integers only and knows no
// device.
//
// Policy. All sizes are rounded up to the arena's unit. A request takes the smallest hole that
// holds it (lowest block, lowest offset among equals), so big holes stay whole. Freed ranges merge
// with their neighbours at once. When no hole fits, the caller adds a block. A block whose whole
// range is free can be taken back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "../backend/buffer_range.h"

namespace rw {

// The free ranges of some blocks: who takes a range knows it. All sizes in bytes.
class Arena {
 public:
  using Range = BufferRange;  // a taken range, or a hole: its size is rounded up to the unit

  explicit Arena(uint64_t unit = 256) : unit_(unit) {}

  // Rounds up to the next multiple of the unit.
  uint64_t round_up(uint64_t bytes) const { return (bytes + unit_ - 1) / unit_ * unit_; }

  // Returns a range for `bytes` (at least one unit), or nothing if no hole is large enough.
  std::optional<Range> allocate(uint64_t bytes);
  // The same at a given place; returns nothing if it is not free.
  std::optional<Range> allocate_at(uint32_t block, uint64_t offset, uint64_t bytes);
  // Gives back a range from allocate(). Throws ValueError if any of it is free, or in no block.
  void free(const Range& range);

  // Adds an empty block; its number must be unused.
  void add_block(uint32_t block, uint64_t bytes);
  // Forgets the blocks that are wholly free and returns their numbers.
  std::vector<uint32_t> remove_free_blocks();

  uint64_t reserved() const { return reserved_; }        // bytes of all blocks
  uint64_t live() const { return live_; }                // bytes of all ranges
  uint64_t largest_hole() const;                         // 0: nothing is free
  std::vector<Range> holes() const;                      // largest first
  std::vector<uint64_t> block_sizes() const;             // by block number; 0: no such block
  size_t block_count() const { return blocks_.size(); }  // the number of blocks
  bool has_block(uint32_t block) const { return blocks_.contains(block); }  // by number

 private:
  using Holes = std::vector<Range>;

  // The first hole of a block that begins behind `offset`, or the first one of a later block.
  Holes::iterator first_behind(uint32_t block, uint64_t offset);
  // Cuts a range out of a hole.
  Range take(Holes::iterator hole, uint64_t offset, uint64_t size);

  uint64_t unit_, reserved_ = 0, live_ = 0;
  std::map<uint32_t, uint64_t> blocks_;  // the size of each
  // By block and offset. They are few, come and go with every tensor, and most blocks have none: a
  // list in one piece of memory is searched and changed faster than a tree.
  Holes holes_;
};

}  // namespace rw
