#include "core/arena/arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/error.h"

namespace rw {

namespace {

// The first span that begins behind `offset`.
template <class Spans>
auto first_behind(Spans& spans, uint64_t offset) {
  return std::upper_bound(spans.begin(), spans.end(), offset,
                          [](uint64_t at, const auto& span) { return at < span.offset; });
}

}  // namespace

std::optional<Arena::Range> Arena::allocate(uint64_t bytes) {
  const uint64_t size = std::max(unit_, round_up(bytes));
  const auto best = std::lower_bound(holes_.begin(), holes_.end(), Hole{size, 0, 0});
  if (best == holes_.end()) return std::nullopt;
  const auto [hole_size, block, offset] = *best;
  return take(block, first_behind(blocks_.at(block).holes, offset) - 1, offset, size);
}

std::optional<Arena::Range> Arena::allocate_at(uint32_t block, uint64_t offset, uint64_t bytes) {
  const uint64_t size = std::max(unit_, round_up(bytes));
  const auto found = blocks_.find(block);
  if (found == blocks_.end() || offset % unit_ != 0) return std::nullopt;
  auto& holes = found->second.holes;
  const auto behind = first_behind(holes, offset);
  if (behind == holes.begin() || offset + size > std::prev(behind)->end()) return std::nullopt;
  return take(block, std::prev(behind), offset, size);
}

// Cuts a range out of a hole.
Arena::Range Arena::take(uint32_t block, std::vector<Span>::iterator hole, uint64_t offset,
                         uint64_t size) {
  Block& b = blocks_.at(block);
  const Span before{hole->offset, offset - hole->offset};
  const Span after{offset + size, hole->end() - offset - size};
  unlist(block, *hole);
  if (before.size) list(block, before);
  if (after.size) list(block, after);
  if (before.size) {
    *hole = before;
    if (after.size) b.holes.insert(hole + 1, after);
  } else if (after.size) {
    *hole = after;
  } else {
    b.holes.erase(hole);
  }
  b.ranges.emplace(offset, size);
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

  Span hole{range.offset, range.size};
  auto first = first_behind(b.holes, hole.offset), last = first;  // those that it joins
  if (last != b.holes.end() && last->offset == hole.end()) hole.size += last++->size;
  if (first != b.holes.begin() && std::prev(first)->end() == hole.offset) {
    --first;
    hole = {first->offset, first->size + hole.size};
  }
  for (auto it = first; it != last; ++it) unlist(range.block, *it);
  if (first == last) {
    b.holes.insert(first, hole);
  } else {
    *first = hole;
    b.holes.erase(first + 1, last);
  }
  list(range.block, hole);
}

void Arena::add_block(uint32_t block, uint64_t bytes) {
  const uint64_t size = bytes / unit_ * unit_;
  check(!blocks_.contains(block) && size > 0, "arena",
        "a new block must have a new number and at least {} bytes, got block {} of {} bytes", unit_,
        block, bytes);
  blocks_[block] = {.size = size, .holes = {{0, size}}};
  reserved_ += size;
  list(block, {0, size});
}

std::vector<uint32_t> Arena::remove_free_blocks() {
  std::vector<uint32_t> removed;
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    if (it->second.ranges.empty()) {
      removed.push_back(it->first);
      unlist(it->first, {0, it->second.size});
      reserved_ -= it->second.size;
      it = blocks_.erase(it);
    } else {
      ++it;
    }
  }
  return removed;
}

uint64_t Arena::largest_hole() const {
  return holes_.empty() ? 0 : std::get<0>(holes_.back());
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
  std::sort(all.begin(), all.end(), [](const Range& a, const Range& b) {
    return std::pair(a.block, a.offset) < std::pair(b.block, b.offset);
  });
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

void Arena::list(uint32_t block, const Span& hole) {
  const Hole entry{hole.size, block, hole.offset};
  holes_.insert(std::lower_bound(holes_.begin(), holes_.end(), entry), entry);
}

void Arena::unlist(uint32_t block, const Span& hole) {
  const Hole entry{hole.size, block, hole.offset};
  holes_.erase(std::lower_bound(holes_.begin(), holes_.end(), entry));
}

}  // namespace rw
