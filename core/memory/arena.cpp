#include "rewind/core/memory/arena.h"

#include <algorithm>
#include <iterator>

#include "rewind/core/base/error.h"

namespace rw {

std::optional<Arena::Range> Arena::allocate(uint64_t bytes) {
  const uint64_t size = std::max(unit_, round_up(bytes));
  const auto best = holes_.lower_bound({size, 0, 0});
  if (best == holes_.end()) return std::nullopt;
  return take(*best, std::get<2>(*best), size);
}

std::optional<Arena::Range> Arena::allocate_at(uint32_t block, uint64_t offset, uint64_t bytes) {
  const uint64_t size = std::max(unit_, round_up(bytes));
  const auto found = blocks_.find(block);
  if (found == blocks_.end() || offset % unit_ != 0) return std::nullopt;
  const auto& holes = found->second.holes;
  auto hole = holes.upper_bound(offset);
  if (hole == holes.begin()) return std::nullopt;
  --hole;  // the last that begins at or before `offset`
  if (offset + size > hole->first + hole->second) return std::nullopt;
  return take({hole->second, block, hole->first}, offset, size);
}

// Cuts a range out of a hole.
Arena::Range Arena::take(Hole hole, uint64_t offset, uint64_t size) {
  const auto [hole_size, block, begin] = hole;
  const uint64_t end = begin + hole_size;
  remove_hole(block, begin, hole_size);
  if (offset > begin) add_hole(block, begin, offset - begin);
  if (end > offset + size) add_hole(block, offset + size, end - offset - size);
  blocks_.at(block).ranges[offset] = size;
  live_ += size;
  return {block, offset, size};
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
  blocks_.try_emplace(block, size, nodes_.get());
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

std::vector<Arena::Range> Arena::holes() const {
  std::vector<Range> all;
  for (auto it = holes_.rbegin(); it != holes_.rend(); ++it)
    all.push_back({std::get<1>(*it), std::get<2>(*it), std::get<0>(*it)});
  return all;
}

std::vector<Arena::Range> Arena::ranges() const {
  std::vector<Range> all;
  for (const auto& [number, block] : blocks_)
    for (const auto& [offset, size] : block.ranges) all.push_back({number, offset, size});
  return all;
}

std::vector<uint64_t> Arena::block_sizes() const {
  std::vector<uint64_t> sizes;
  for (const auto& [number, block] : blocks_) {
    sizes.resize(std::max<size_t>(sizes.size(), number + 1));
    sizes[number] = block.size;
  }
  return sizes;
}

void Arena::add_hole(uint32_t block, uint64_t offset, uint64_t size) {
  blocks_.at(block).holes[offset] = size;
  holes_.insert({size, block, offset});
}

void Arena::remove_hole(uint32_t block, uint64_t offset, uint64_t size) {
  blocks_.at(block).holes.erase(offset);
  holes_.erase({size, block, offset});
}

}  // namespace rw
