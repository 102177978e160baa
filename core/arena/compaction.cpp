#include "core/arena/compaction.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

namespace rw {

namespace {

// Holes and taken ranges of a block, by address.
struct Piece {
  Arena::Range range;
  bool is_hole = false;
};

// Pieces [first, last) in the order of addresses, which become one hole.
struct Window {
  size_t first = 0, last = 0;
  uint64_t moved = 0, bytes = 0;
};

using Holes = std::set<std::tuple<uint64_t, uint32_t, uint64_t>>;  // size, block, offset

class Compaction {
 public:
  Compaction(const Arena& arena, std::span<const Arena::Range> taken, uint64_t size, uint64_t room,
             const std::set<uint32_t>& left)
      : size_(size), room_(room) {
    for (const Arena::Range& range : taken) pieces_.push_back({range, false});
    for (const Arena::Range& hole : arena.holes()) {
      if (left.contains(hole.block)) continue;
      pieces_.push_back({hole, true});
      holes_.emplace(hole.size, hole.block, hole.offset);
    }
    std::ranges::sort(pieces_, {},
                      [](const Piece& p) { return std::pair(p.range.block, p.range.offset); });
  }

  std::vector<Move> run() {
    std::vector<Window> windows = this->windows();
    const auto cheaper = [](const Window& a, const Window& b) {
      return std::tuple(a.moved, a.bytes, a.first) < std::tuple(b.moved, b.bytes, b.first);
    };
    const size_t tried = std::min(windows.size(), most_tried);
    std::partial_sort(windows.begin(), windows.begin() + static_cast<ptrdiff_t>(tried),
                      windows.end(), cheaper);
    windows.resize(tried);
    for (const Window& window : windows)
      if (auto moves = evacuate(window)) return *moves;
    if (auto moves = pack()) return *moves;
    for (const Window& block : blocks())
      if (block.bytes + room_ >= size_)
        if (auto moves = evacuate(block)) return *moves;
    return {};
  }

 private:
  static constexpr size_t most_tried = 32;

  // All windows of each block that hold `size` bytes, and would not without their first or last
  // piece.
  std::vector<Window> windows() const {
    std::vector<Window> all;
    for (const Window& block : blocks()) {
      size_t last = block.first;
      uint64_t bytes = 0, moved = 0;
      for (size_t first = block.first; first < block.last; ++first) {
        for (; last < block.last && bytes < size_; ++last) {
          bytes += pieces_[last].range.size;
          if (!pieces_[last].is_hole) moved += pieces_[last].range.size;
        }
        if (bytes < size_) break;
        all.push_back({first, last, moved, bytes});
        bytes -= pieces_[first].range.size;
        if (!pieces_[first].is_hole) moved -= pieces_[first].range.size;
      }
    }
    return all;
  }

  // All pieces of each block.
  std::vector<Window> blocks() const {
    std::vector<Window> all;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      if (all.empty() || pieces_[all.back().first].range.block != piece.range.block)
        all.push_back({i, i, 0, 0});
      all.back().last = i + 1;
      all.back().bytes += piece.range.size;
      if (!piece.is_hole) all.back().moved += piece.range.size;
    }
    return all;
  }

  // Moves the window's values into holes outside, large ones first, each into the smallest hole
  // that fits. The bytes at the window's end beyond `size` count as outside.
  std::optional<std::vector<Move>> evacuate(const Window& window) const {
    Holes holes = holes_;
    std::vector<Arena::Range> values;
    for (size_t i = window.first; i < window.last; ++i) {
      const auto& [block, offset, size] = pieces_[i].range;
      if (pieces_[i].is_hole)
        holes.erase({size, block, offset});
      else
        values.push_back(pieces_[i].range);
    }
    const Piece& end = pieces_[window.last - 1];
    const uint64_t spare = window.bytes - std::min(window.bytes, size_);
    if (end.is_hole && spare > 0 && spare < end.range.size)
      holes.emplace(spare, end.range.block, end.range.offset + end.range.size - spare);
    std::ranges::stable_sort(values, std::greater<>(), &Arena::Range::size);
    std::vector<Move> moves;
    for (const Arena::Range& value : values) {
      const auto hole = holes.lower_bound({value.size, 0, 0});
      if (hole == holes.end()) return std::nullopt;
      const auto [size, block, offset] = *hole;
      moves.push_back({value, {block, offset, value.size}});
      holes.erase(hole);
      if (size > value.size) holes.emplace(size - value.size, block, offset + value.size);
    }
    return moves;
  }

  // Moves all values of the block with the most free bytes down to its beginning.
  std::optional<std::vector<Move>> pack() const {
    const auto free = [](const Window& block) { return block.bytes - block.moved; };
    const std::vector<Window> blocks = this->blocks();
    const auto best = std::ranges::max_element(blocks, {}, free);
    if (best == blocks.end() || free(*best) < size_) return std::nullopt;
    std::vector<Move> moves;
    uint64_t to = 0;
    for (size_t i = best->first; i < best->last; ++i) {
      const Arena::Range& range = pieces_[i].range;
      if (pieces_[i].is_hole) continue;
      if (range.offset != to) moves.push_back({range, {range.block, to, range.size}});
      to += range.size;
    }
    return moves;
  }

  uint64_t size_, room_;
  std::vector<Piece> pieces_;
  Holes holes_;
};

}  // namespace

std::vector<Move> compact(const Arena& arena, std::span<const Arena::Range> taken, uint64_t size,
                          uint64_t room, const std::set<uint32_t>& left) {
  return Compaction(arena, taken, size, room, left).run();
}

std::pair<std::vector<uint64_t>, std::vector<Arena::Range>> lay_afresh(
    const std::vector<uint64_t>& sizes, uint64_t size, uint64_t largest, uint64_t total,
    uint64_t unit) {
  std::vector<uint64_t> blocks;
  if (largest < unit) return {};
  std::vector<uint64_t> free;
  for (uint64_t left = total; left >= unit; left -= free.back()) {
    free.push_back(std::min(left, largest) / unit * unit);
    blocks.push_back(free.back());
  }
  std::vector<size_t> order(sizes.size() + 1);  // the last is the one more
  std::iota(order.begin(), order.end(), size_t{0});
  const auto bytes = [&](size_t i) { return i < sizes.size() ? sizes[i] : size; };
  if (free.size() > 1) std::ranges::stable_sort(order, std::greater<>(), bytes);
  std::vector<Arena::Range> places(sizes.size());
  for (const size_t i : order) {
    const auto block = std::ranges::find_if(free, [&](uint64_t b) { return b >= bytes(i); });
    if (block == free.end()) return {};
    const auto number = static_cast<size_t>(block - free.begin());
    if (i < sizes.size())
      places[i] = {static_cast<uint32_t>(number), blocks[number] - *block, sizes[i]};
    *block -= bytes(i);
  }
  return {std::move(blocks), std::move(places)};
}

}  // namespace rw
