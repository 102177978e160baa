// Compares the offset planner with a plain model that has one flag per unit.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <utility>

#include "core/arena/arena.h"
#include "core/arena/compaction.h"
#include "core/base/error.h"

namespace rw::test {

namespace {

constexpr uint64_t arena_unit = 16;

class ArenaModel {
 public:
  void add_block(uint32_t block, uint64_t units) { used_[block].assign(units, false); }

  // Takes the best fit: the smallest hole that holds `units`; among equals the lowest block, then
  // offset.
  std::optional<Arena::Range> allocate(uint64_t units) {
    std::optional<Arena::Range> best;
    for (const Arena::Range& hole : holes())
      if (hole.size >= units * arena_unit && (!best || hole.size < best->size)) best = hole;
    if (!best) return std::nullopt;
    best->size = units * arena_unit;
    mark(*best, true);
    return best;
  }
  void free(const Arena::Range& range) { mark(range, false); }

  uint64_t largest_hole() const {
    uint64_t largest = 0;
    for (const Arena::Range& hole : holes()) largest = std::max(largest, hole.size);
    return largest;
  }
  // Drops blocks in which nothing is used, and returns their numbers.
  std::vector<uint32_t> remove_free_blocks() {
    std::vector<uint32_t> removed;
    for (const auto& [block, used] : used_)
      if (std::find(used.begin(), used.end(), true) == used.end()) removed.push_back(block);
    for (const uint32_t block : removed) used_.erase(block);
    return removed;
  }

 private:
  std::vector<Arena::Range> holes() const {
    std::vector<Arena::Range> all;
    for (const auto& [block, used] : used_)
      for (uint64_t i = 0; i < used.size(); ++i) {
        if (used[i]) continue;
        if (i == 0 || used[i - 1]) all.push_back({block, i * arena_unit, 0});
        all.back().size += arena_unit;
      }
    return all;
  }
  void mark(const Arena::Range& range, bool value) {
    auto& used = used_.at(range.block);
    for (uint64_t i = range.offset / arena_unit; i < (range.offset + range.size) / arena_unit;
         ++i) {
      REQUIRE(used.at(i) != value);  // no overlap, no double free
      used[i] = value;
    }
  }

  std::map<uint32_t, std::vector<bool>> used_;
};

// Makes the moves one after the other, each into what is free by then.
void make_moves(Arena& arena, const std::vector<Move>& moves) {
  for (const Move& move : moves) {
    CHECK(move.to.size == move.from.size);
    if (move.to.block == move.from.block && move.to.offset + move.to.size > move.from.offset)
      CHECK((move.to.offset < move.from.offset ||
             move.to.offset >= move.from.offset + move.from.size));
    arena.free(move.from);
    REQUIRE(arena.allocate_at(move.to.block, move.to.offset, move.to.size).has_value());
  }
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("arena: random requests get what the model gives") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Arena arena(arena_unit);
    ArenaModel model;
    uint32_t blocks = 0;
    const auto add_block = [&](uint64_t units) {
      model.add_block(blocks, units);
      arena.add_block(blocks++,
                      units * arena_unit + random() % arena_unit);  // the odd rest stays unused
    };
    add_block(64);
    std::vector<Arena::Range> live;
    uint64_t live_bytes = 0;
    for (int step = 0; step < 1500; ++step) {
      const uint32_t what = random() % 100;
      if (what < 55) {
        const uint64_t bytes = random() % (what < 5 ? 40 * arena_unit : 6 * arena_unit);
        const auto expected =
            model.allocate(std::max<uint64_t>(1, (bytes + arena_unit - 1) / arena_unit));
        const auto range = arena.allocate(bytes);
        REQUIRE(range == expected);
        if (range)
          live.push_back(*range), live_bytes += range->size;
        else if (blocks < 5)
          add_block(32 + random() % 64);
      } else if (what < 98 && !live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        model.free(live.back());
        arena.free(live.back());
        live_bytes -= live.back().size;
        live.pop_back();
      } else if (what == 99) {
        REQUIRE(arena.remove_free_blocks() == model.remove_free_blocks());
      }
      REQUIRE(arena.live() == live_bytes);
      REQUIRE(arena.largest_hole() == model.largest_hole());
    }
    for (const Arena::Range& range : live) arena.free(range);
    CHECK(arena.live() == 0);
    const size_t held = arena.block_count();
    CHECK(arena.remove_free_blocks().size() == held);
    CHECK(arena.reserved() == 0);
  }
}

TEST_CASE("arena: sizes round up to the unit, freed neighbours merge") {
  Arena arena(256);
  CHECK_FALSE(arena.allocate(1).has_value());
  arena.add_block(7, 1024);
  const auto a = arena.allocate(0), b = arena.allocate(257), c = arena.allocate(256);
  CHECK(a == Arena::Range{7, 0, 256});
  CHECK(b == Arena::Range{7, 256, 512});
  CHECK(c == Arena::Range{7, 768, 256});
  CHECK(arena.largest_hole() == 0);
  arena.free(*a);
  arena.free(*c);
  CHECK_FALSE(arena.allocate(512).has_value());
  arena.free(*b);
  CHECK(arena.largest_hole() == 1024);
  CHECK(arena.allocate(1024) == Arena::Range{7, 0, 1024});
}

TEST_CASE("arena: a place that is asked for is given where it is free") {
  Arena arena(256);
  arena.add_block(0, 1024);
  CHECK_FALSE(arena.allocate_at(0, 128, 256).has_value());
  CHECK_FALSE(arena.allocate_at(0, 768, 512).has_value());
  CHECK_FALSE(arena.allocate_at(1, 0, 256).has_value());
  const auto middle = arena.allocate_at(0, 512, 256);
  CHECK(middle == Arena::Range{0, 512, 256});
  CHECK_FALSE(arena.allocate_at(0, 512, 256).has_value());
  CHECK_FALSE(arena.allocate_at(0, 256, 512).has_value());
  CHECK(arena.largest_hole() == 512);
  CHECK(arena.allocate_at(0, 768, 256) == Arena::Range{0, 768, 256});
  CHECK(arena.allocate_at(0, 0, 512) == Arena::Range{0, 0, 512});
  arena.free(*middle);
  CHECK(arena.largest_hole() == 256);
}

TEST_CASE("arena: moves bring free bytes together, or free a block") {
  std::mt19937 random(5);
  int moved = 0, freed = 0;
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    Arena arena(arena_unit);
    const std::vector<uint64_t> blocks = {12 * arena_unit, 9 * arena_unit};
    for (uint32_t b = 0; b < 2; ++b) arena.add_block(b, blocks[b]);
    std::vector<Arena::Range> taken;
    while (const auto range = arena.allocate((1 + random() % 4) * arena_unit))
      taken.push_back(*range);
    std::erase_if(taken, [&](const Arena::Range& range) {
      const bool goes = random() % 3 != 0;
      if (goes) arena.free(range);
      return goes;
    });
    std::vector<uint64_t> free = blocks;
    for (const Arena::Range& range : taken) free[range.block] -= range.size;
    const uint64_t size = (1 + random() % 14) * arena_unit, room = random() % 6 * arena_unit;
    const bool has_hole = arena.largest_hole() >= size;
    const std::vector<Move> moves = compact(arena, taken, size, room);
    make_moves(arena, moves);
    const bool fits = arena.largest_hole() >= size;
    if (has_hole) CHECK(moves.empty());
    if (std::ranges::max(free) >= size) CHECK(fits);
    uint64_t given_back = 0;
    for (const uint32_t block : arena.remove_free_blocks()) given_back += blocks[block];
    if (!moves.empty()) CHECK((fits || given_back + room >= size));
    moved += !moves.empty();
    freed += !moves.empty() && !fits;
  }
  CHECK(moved > 50);
  CHECK(freed > 5);
}

TEST_CASE("arena: moves are those of the fewest bytes") {
  const auto moves_for = [](const std::vector<std::pair<bool, uint64_t>>& pieces, uint64_t units) {
    Arena arena(arena_unit);
    uint64_t end = 0;
    for (const auto& [is_taken, size] : pieces) end += size;
    arena.add_block(0, end * arena_unit);
    std::vector<Arena::Range> taken;
    uint64_t at = 0;
    for (const auto& [is_taken, size] : pieces) {
      if (is_taken) taken.push_back(*arena.allocate_at(0, at * arena_unit, size * arena_unit));
      at += size;
    }
    std::vector<std::array<uint64_t, 3>> moves;  // from, to, size in units
    for (const Move& move : compact(arena, taken, units * arena_unit, 0))
      moves.push_back({move.from.offset / arena_unit, move.to.offset / arena_unit,
                       move.from.size / arena_unit});
    return moves;
  };
  using Moves = std::vector<std::array<uint64_t, 3>>;
  // Not the value of four units.
  CHECK(moves_for({{true, 1}, {false, 1}, {true, 4}, {false, 1}}, 2) == Moves{{0, 6, 1}});
  CHECK(moves_for({{true, 4}, {false, 1}, {true, 1}, {false, 1}, {true, 4}, {false, 1}}, 3) ==
        Moves{{5, 11, 1}});
  // The rest of the last hole of a window has room for its value.
  CHECK(moves_for({{false, 3}, {true, 1}, {false, 3}}, 5) == Moves{{3, 5, 1}});
  CHECK(moves_for({{true, 2}, {false, 1}, {true, 2}, {false, 1}}, 2) == Moves{{3, 2, 2}});  // packs
  CHECK(moves_for({{true, 2}, {false, 1}, {true, 2}, {false, 1}}, 3).empty());
}

TEST_CASE("arena: a block is emptied where it and the room beside it are just enough") {
  Arena arena(arena_unit);
  std::vector<Arena::Range> taken;
  for (const uint32_t block : {0, 1}) {
    arena.add_block(block, 2 * arena_unit);
    taken.push_back(*arena.allocate_at(block, 0, arena_unit));
  }
  CHECK(compact(arena, taken, 3 * arena_unit, 0).empty());
  const std::vector<Move> moves = compact(arena, taken, 3 * arena_unit, arena_unit);
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].from == taken[0]);
  CHECK(moves[0].to == Arena::Range{1, arena_unit, arena_unit});
}

TEST_CASE("arena: values that are laid afresh lie side by side, and one more fits") {
  std::mt19937 random(6);
  int laid = 0;
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    std::vector<uint64_t> sizes;
    for (uint32_t i = random() % 5; i > 0; --i) sizes.push_back((1 + random() % 5) * arena_unit);
    const uint64_t size = (1 + random() % 5) * arena_unit, largest = random() % 200,
                   total = random() % 400;
    const auto [blocks, places] = lay_afresh(sizes, size, largest, total, arena_unit);
    uint64_t needed = size, next = 0;
    for (const uint64_t bytes : sizes) needed += bytes;
    if (blocks.empty()) {
      if (total <= largest) CHECK(needed > total / arena_unit * arena_unit);
      continue;
    }
    ++laid;
    Arena arena(arena_unit);
    for (uint32_t b = 0; b < blocks.size(); ++b) {
      CHECK(blocks[b] <= largest);
      CHECK(blocks[b] % arena_unit == 0);
      arena.add_block(b, blocks[b]);
    }
    CHECK(arena.reserved() <= total);
    REQUIRE(places.size() == sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Arena::Range& place = places[i];
      CHECK(place.size == sizes[i]);
      CHECK(arena.allocate_at(place.block, place.offset, place.size).has_value());
      if (blocks.size() == 1) CHECK(place.offset == std::exchange(next, next + sizes[i]));
    }
    CHECK(arena.largest_hole() >= size);
  }
  CHECK(laid > 100);
  CHECK(lay_afresh({}, 1, 8, 100, arena_unit).first.empty());
  using Sizes = std::vector<uint64_t>;
  const auto [one, in_order] = lay_afresh({16, 32}, 16, 100, 100, 16);
  CHECK(one == Sizes{96});
  CHECK(in_order == std::vector<Arena::Range>{{0, 0, 16}, {0, 16, 32}});
  CHECK(lay_afresh({16}, 16, 16, 32, 16).first == Sizes{16, 16});
  CHECK(lay_afresh({16, 32}, 32, 32, 80, 16).first == Sizes{32, 32, 16});  // large ones first
}

TEST_CASE("arena: misuse is an error") {
  Arena arena(256);
  arena.add_block(0, 1024);
  CHECK_THROWS_AS(arena.add_block(0, 1024), ValueError);
  CHECK_THROWS_AS(arena.add_block(1, 255), ValueError);
  const Arena::Range range = *arena.allocate(300);
  CHECK_THROWS_AS(arena.free({0, range.offset, range.size + 256}), ValueError);
  CHECK_THROWS_AS(arena.free({1, range.offset, range.size}), ValueError);
  const Arena::Range last = *arena.allocate_at(0, 768, 256);
  CHECK_THROWS_AS(arena.free({0, last.offset, last.size + 256}), ValueError);
  CHECK_THROWS_AS(arena.free({0, last.offset - 256, last.size + 256}), ValueError);
  arena.free(last);
  arena.free(range);
  CHECK_THROWS_WITH_AS(arena.free(range),
                       "[arena] free takes a live range, got block 0 offset 0 size 512",
                       ValueError);
  CHECK(arena.live() == 0);
}

TEST_SUITE_END();

}  // namespace rw::test
