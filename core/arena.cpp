#include "core/arena.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"

namespace rw {

std::optional<Arena::Range> Arena::allocate(uint64_t bytes) {
  const uint64_t size = std::max(unit_, round_up(bytes));
  const auto best = holes_.lower_bound({size, 0, 0});
  if (best == holes_.end()) return std::nullopt;
  const auto [hole_size, block, offset] = *best;
  remove_hole(block, offset, hole_size);
  if (hole_size > size) add_hole(block, offset + size, hole_size - size);
  blocks_[block].ranges[offset] = size;
  live_ += size;
  return Range{block, offset, size};
}

void Arena::free(const Range& range) {
  const auto block = blocks_.find(range.block);
  const bool known = block != blocks_.end() && block->second.ranges.contains(range.offset) &&
                     block->second.ranges.at(range.offset) == range.size;
  check(known, "arena", "free takes a live range, got block {} offset {} size {}", range.block,
        range.offset, range.size);
  Block& b = block->second;
  b.ranges.erase(range.offset);
  live_ -= range.size;

  uint64_t begin = range.offset, end = range.offset + range.size;
  const auto after = b.holes.find(end);
  if (after != b.holes.end()) {
    end += after->second;
    remove_hole(range.block, after->first, after->second);
  }
  const auto next = b.holes.lower_bound(begin);
  if (next != b.holes.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      remove_hole(range.block, before->first, before->second);
    }
  }
  add_hole(range.block, begin, end - begin);
}

void Arena::add_block(uint32_t block, uint64_t bytes) {
  const uint64_t size = bytes / unit_ * unit_;
  check(!blocks_.contains(block) && size > 0, "arena",
        "a new block must have a new number and at least {} bytes, got block {} of {} bytes", unit_,
        block, bytes);
  blocks_[block].size = size;
  reserved_ += size;
  add_hole(block, 0, size);
}

std::vector<uint32_t> Arena::remove_free_blocks() {
  std::vector<uint32_t> removed;
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    if (it->second.ranges.empty()) {
      removed.push_back(it->first);
      holes_.erase({it->second.size, it->first, 0});
      reserved_ -= it->second.size;
      it = blocks_.erase(it);
    } else {
      ++it;
    }
  }
  return removed;
}

uint64_t Arena::largest_hole() const {
  return holes_.empty() ? 0 : std::get<0>(*holes_.rbegin());
}

void Arena::add_hole(uint32_t block, uint64_t offset, uint64_t size) {
  blocks_[block].holes[offset] = size;
  holes_.insert({size, block, offset});
}

void Arena::remove_hole(uint32_t block, uint64_t offset, uint64_t size) {
  blocks_[block].holes.erase(offset);
  holes_.erase({size, block, offset});
}

}  // namespace rw
