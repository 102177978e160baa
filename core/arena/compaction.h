// Finds moves of values that bring free bytes together. It works on integers only and knows no
// device.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "arena.h"

namespace rw {

// A taken range that moves elsewhere. The two may overlap if it moves down in its block.
struct Move {
  Arena::Range from;  // where it is
  Arena::Range to;    // where it goes
};

// Returns moves after which the arena has a hole of `size` bytes, or a free block that, once given
// back, leaves enough to ask for: `room` more bytes of blocks may be allocated. The moves must be
// made in their order, each into memory that is free by then. They move as few bytes as a look at
// all windows of addresses finds, if need be all bytes of a block. `taken` has all ranges that are
// taken, in any order, but for those in the blocks `left`, which stay as they are. Empty: no moves
// help.
std::vector<Move> compact(const Arena& arena, std::span<const Arena::Range> taken, uint64_t size,
                          uint64_t room, const std::set<uint32_t>& left = {});

// Returns where values of `sizes` lie in new blocks of at most `largest` bytes each and `total` in
// all, each a multiple of `unit`, if one more value of `size` bytes is to fit, too: the block
// (counted from 0) and the offset by value, after the bytes of the blocks. In one block they keep
// their order. No blocks: they do not fit.
std::pair<std::vector<uint64_t>, std::vector<Arena::Range>> lay_afresh(
    const std::vector<uint64_t>& sizes, uint64_t size, uint64_t largest, uint64_t total,
    uint64_t unit);

}  // namespace rw
