#include "core/arena/arena.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <tuple>
#include <utility>

#include "core/base/error.h"

namespace rw {

Arena::Holes::iterator Arena::first_behind(uint32_t block, uint64_t offset) {
  return std::ranges::upper_bound(holes_, std::pair(block, offset), {}, [](const Range& hole) {
    return std::pair(hole.block, hole.offset);
  });
}

std::optional<Arena::Range> Arena::allocate(uint64_t bytes) {
  const uint64_t size = std::max(unit_, round_up(bytes));
  auto best = holes_.end();
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole)
    if (hole->size >= size && (best == holes_.end() || hole->size < best->size)) best = hole;
  if (best == holes_.end()) return std::nullopt;
  return take(best, best->offset, size);
}

std::optional<Arena::Range> Arena::allocate_at(uint32_t block, uint64_t offset, uint64_t bytes) {
  const uint64_t size = std::max(unit_, round_up(bytes));
  const auto behind = first_behind(block, offset);
  if (behind == holes_.begin() || offset % unit_ != 0) return std::nullopt;
  const auto hole = std::prev(behind);
  if (hole->block != block || offset + size > hole->end()) return std::nullopt;
  return take(hole, offset, size);
}

Arena::Range Arena::take(Holes::iterator hole, uint64_t offset, uint64_t size) {
  const uint32_t block = hole->block;
  const Range before{block, hole->offset, offset - hole->offset};
  const Range after{block, offset + size, hole->end() - offset - size};
  if (before.size) {
    *hole = before;
    if (after.size) holes_.insert(hole + 1, after);
  } else if (after.size) {
    *hole = after;
  } else {
    holes_.erase(hole);
  }
  live_ += size;
  return {block, offset, size};
}

void Arena::free(const Range& range) {
  const auto block = blocks_.find(range.block);
  const auto check_live = [&](bool is_live) {
    check(is_live, "arena", "free takes a live range, got block {} offset {} size {}", range.block,
          range.offset, range.size);
  };
  check_live(block != blocks_.end());
  Range hole = range;
  auto first = first_behind(hole.block, hole.offset), last = first;  // those that it joins
  const bool has_next = last != holes_.end() && last->block == hole.block;
  const bool has_previous = first != holes_.begin() && std::prev(first)->block == hole.block;
  check_live(hole.end() <= (has_next ? last->offset : block->second) &&
             (!has_previous || std::prev(first)->end() <= hole.offset));
  live_ -= range.size;

  if (has_next && last->offset == hole.end()) hole.size += last++->size;
  if (has_previous && std::prev(first)->end() == hole.offset) {
    --first;
    hole = {hole.block, first->offset, first->size + hole.size};
  }
  if (first == last) {
    holes_.insert(first, hole);
  } else {
    *first = hole;
    holes_.erase(first + 1, last);
  }
}

void Arena::add_block(uint32_t block, uint64_t bytes) {
  const uint64_t size = bytes / unit_ * unit_;
  check(!has_block(block) && size > 0, "arena",
        "a new block must have a new number and at least {} bytes, got block {} of {} bytes", unit_,
        block, bytes);
  blocks_[block] = size;
  holes_.insert(first_behind(block, 0), {block, 0, size});
  reserved_ += size;
}

std::vector<uint32_t> Arena::remove_free_blocks() {
  std::vector<uint32_t> removed;
  std::erase_if(holes_, [&](const Range& hole) {
    const auto block = blocks_.find(hole.block);
    if (hole.size < block->second) return false;
    removed.push_back(hole.block);
    reserved_ -= hole.size;
    blocks_.erase(block);
    return true;
  });
  return removed;
}

uint64_t Arena::largest_hole() const {
  return holes_.empty() ? 0 : std::ranges::max(holes_, {}, &Range::size).size;
}

std::vector<Arena::Range> Arena::holes() const {
  Holes all = holes_;
  std::ranges::sort(all, std::greater{}, [](const Range& hole) {
    return std::tuple(hole.size, hole.block, hole.offset);
  });
  return all;
}

std::vector<uint64_t> Arena::block_sizes() const {
  std::vector<uint64_t> sizes;
  for (const auto& [number, size] : blocks_) {
    sizes.resize(std::max<size_t>(sizes.size(), number + 1));
    sizes[number] = size;
  }
  return sizes;
}

}  // namespace rw
