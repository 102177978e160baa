#include "core/arena/arena.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <tuple>
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
  Blocks::value_type* in = nullptr;
  std::vector<Span>::iterator best;
  for (auto& block : blocks_)
    for (auto hole = block.second.holes.begin(); hole != block.second.holes.end(); ++hole) {
      if (hole->size < size || (in && hole->size >= best->size)) continue;
      in = &block;
      best = hole;
    }
  if (!in) return std::nullopt;
  return take(*in, best, best->offset, size);
}

std::optional<Arena::Range> Arena::allocate_at(uint32_t block, uint64_t offset, uint64_t bytes) {
  const uint64_t size = std::max(unit_, round_up(bytes));
  const auto found = blocks_.find(block);
  if (found == blocks_.end() || offset % unit_ != 0) return std::nullopt;
  auto& holes = found->second.holes;
  const auto behind = first_behind(holes, offset);
  if (behind == holes.begin() || offset + size > std::prev(behind)->end()) return std::nullopt;
  return take(*found, std::prev(behind), offset, size);
}

// Cuts a range out of a hole.
Arena::Range Arena::take(Blocks::value_type& block, std::vector<Span>::iterator hole,
                         uint64_t offset, uint64_t size) {
  auto& [number, b] = block;
  const Span before{hole->offset, offset - hole->offset};
  const Span after{offset + size, hole->end() - offset - size};
  if (before.size) {
    *hole = before;
    if (after.size) b.holes.insert(hole + 1, after);
  } else if (after.size) {
    *hole = after;
  } else {
    b.holes.erase(hole);
  }
  live_ += size;
  return {number, offset, size};
}

void Arena::free(const Range& range) {
  const auto block = blocks_.find(range.block);
  const auto check_live = [&](bool is_live) {
    check(is_live, "arena", "free takes a live range, got block {} offset {} size {}", range.block,
          range.offset, range.size);
  };
  check_live(block != blocks_.end());
  Block& b = block->second;
  Span hole{range.offset, range.size};
  auto first = first_behind(b.holes, hole.offset), last = first;  // those that it joins
  check_live(hole.end() <= (last == b.holes.end() ? b.size : last->offset) &&
             (first == b.holes.begin() || std::prev(first)->end() <= hole.offset));
  live_ -= range.size;

  if (last != b.holes.end() && last->offset == hole.end()) hole.size += last++->size;
  if (first != b.holes.begin() && std::prev(first)->end() == hole.offset) {
    --first;
    hole = {first->offset, first->size + hole.size};
  }
  if (first == last) {
    b.holes.insert(first, hole);
  } else {
    *first = hole;
    b.holes.erase(first + 1, last);
  }
}

void Arena::add_block(uint32_t block, uint64_t bytes) {
  const uint64_t size = bytes / unit_ * unit_;
  check(!blocks_.contains(block) && size > 0, "arena",
        "a new block must have a new number and at least {} bytes, got block {} of {} bytes", unit_,
        block, bytes);
  blocks_[block] = {.size = size, .holes = {{0, size}}};
  reserved_ += size;
}

std::vector<uint32_t> Arena::remove_free_blocks() {
  std::vector<uint32_t> removed;
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    if (it->second.is_free()) {
      removed.push_back(it->first);
      reserved_ -= it->second.size;
      it = blocks_.erase(it);
    } else {
      ++it;
    }
  }
  return removed;
}

uint64_t Arena::largest_hole() const {
  uint64_t largest = 0;
  for (const auto& [number, block] : blocks_)
    for (const Span& hole : block.holes) largest = std::max(largest, hole.size);
  return largest;
}

std::vector<Arena::Range> Arena::holes() const {
  std::vector<Range> all;
  for (const auto& [number, block] : blocks_)
    for (const Span& hole : block.holes) all.push_back({number, hole.offset, hole.size});
  std::ranges::sort(all, std::greater{}, [](const Range& hole) {
    return std::tuple(hole.size, hole.block, hole.offset);
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

}  // namespace rw
