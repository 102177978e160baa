// Where values move so that free bytes come to lie together. Integers only, no device in sight.
#pragma once

#include <cstdint>
#include <vector>

#include "arena.h"

namespace rw {

// A taken range that goes elsewhere. Both may overlap where it goes down in its block.
struct Move {
  Arena::Range from;  // where it is
  Arena::Range to;    // where it goes
};

// Moves after which the arena has a hole of `size` bytes, or a free block that, given back, leaves
// so much to ask for: `room` bytes of blocks can be had besides. To be made in their order, each
// into what is free by then. As few bytes as a look at all windows of addresses finds, if need be
// all of a block. Empty: no moves do.
std::vector<Move> compact(const Arena& arena, uint64_t size, uint64_t room);

// Where values of `sizes` lie in new blocks of at most `largest` bytes and `total` in all, each a
// multiple of `unit`, if one more of `size` bytes is to fit, too: by value the block, counted from
// 0, and the offset, and the bytes of the blocks. In one block they lie in their order. No blocks:
// they do not fit.
struct FreshBlocks {
  std::vector<uint64_t> blocks;      // their bytes
  std::vector<Arena::Range> places;  // of the values, in their order
};
FreshBlocks lay_afresh(const std::vector<uint64_t>& sizes, uint64_t size, uint64_t largest,
                       uint64_t total, uint64_t unit);

}  // namespace rw
