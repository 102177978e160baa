// The owners of the elements of parameters: parts as equal as rows allow, and states by their
// names.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "data/base/random.h"
#include "optim/base/ownership.h"
#include "optim/base/state_parts.h"

using namespace rw;

namespace {

int64_t owned_elements(const Ownership& ownership, size_t parameters, int rank) {
  int64_t sum = 0;
  for (size_t i = 0; i < parameters; ++i) sum += ownership.part(i, rank).size;
  return sum;
}

using Pieces = std::vector<std::array<int64_t, 4>>;  // saved, from, to, size

Pieces pieces_of(const SavedParts& saved, const std::string& name, int64_t elements) {
  const auto found = saved.pieces(name, elements);
  if (!found) return {{-1, 0, 0, 0}};
  Pieces pieces;
  for (const SavedParts::Piece& p : *found)
    pieces.push_back({static_cast<int64_t>(p.saved), p.from, p.to, p.size});
  return pieces;
}

}  // namespace

TEST_CASE("ownership: every element is one rank's, and parts differ by a row at most" *
          doctest::test_suite("host")) {
  DataRandom random(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<Ownership::Parameter> line;
    for (uint64_t count = 1 + random.below(12); count > 0; --count) {
      const uint64_t most = std::array<uint64_t, 4>{1, 100, 6000, 3000000}[random.below(4)];
      line.push_back({static_cast<int64_t>(random.below(most + 1)), true});
    }
    const auto ranks = static_cast<int>(1 + random.below(9));
    CAPTURE(round);
    CAPTURE(ranks);
    int64_t total = 0;
    for (const Ownership::Parameter& p : line) total += p.size;
    const int64_t row = row_elements(total);
    const Ownership ownership(line, ranks);
    CHECK(ownership.ranks() == ranks);
    for (size_t i = 0; i < line.size(); ++i) {
      int64_t next = 0;
      int owners = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const ElementRange part = ownership.part(i, rank);
        CHECK(ownership.has(i, rank) == (part.size > 0 || ownership.owner(i) == rank));
        if (part.size == 0) continue;
        if (owners++ == 0) CHECK(ownership.owner(i) == rank);
        CHECK(part.offset == next);
        CHECK(part.offset % row == 0);
        next = part.end();
      }
      CHECK(next == line[i].size);
      CHECK(ownership.is_divided(i) == (owners > 1));
      CHECK((ownership.owner(i) >= 0 && ownership.owner(i) < ranks));
    }
    // Every cut is within half a row of its ideal place, so no part is off by more than a row.
    int64_t end = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t own = owned_elements(ownership, line.size(), rank);
      end += own;
      CHECK(std::abs(end - total * (rank + 1) / ranks) <= row / 2 + 1);
      CHECK(std::abs(own - total / ranks) <= row + 1);
    }
    // If parameters are not divisible, each has one owner, in the order of the parameters.
    for (Ownership::Parameter& p : line) p.is_divisible = false;
    const Ownership whole(line, ranks);
    int last = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      CHECK_FALSE(whole.is_divided(i));
      CHECK(whole.part(i, whole.owner(i)).size == line[i].size);
      CHECK(whole.owner(i) >= last);
      last = whole.owner(i);
    }
  }
}

TEST_CASE("ownership: one table that is most of the model" * doctest::test_suite("host")) {
  const std::vector<Ownership::Parameter> line = {
      {30522 * 256, true}, {256, true}, {3000000, true}};
  const Ownership ownership(line, 4);
  const int64_t row = row_elements(30522 * 256 + 256 + 3000000);
  CHECK(row == 4096);
  std::vector<int64_t> sizes;
  for (int rank = 0; rank < 4; ++rank) sizes.push_back(owned_elements(ownership, 3, rank));
  CHECK(std::ranges::max(sizes) - std::ranges::min(sizes) <= row);
  CHECK(ownership.is_divided(0));
  CHECK(row_elements(1) == 4096);
  CHECK(row_elements(16384 * 4096) == 4096);
  CHECK(row_elements(16384 * 4096 + 1) == 8192);
  CHECK(row_elements(int64_t{1} << 40) == int64_t{1} << 18);
}

TEST_CASE("state parts: names of elements" * doctest::test_suite("host")) {
  CHECK(part_name("exp_avg.w", {4096, 100}) == "exp_avg.w[4096:4196]");
  const auto part = parse_part_name("exp_avg.w[4096:4196]");
  REQUIRE(part.has_value());
  CHECK(part->whole == "exp_avg.w");
  CHECK(part->elements.offset == 4096);
  CHECK(part->elements.size == 100);
  CHECK(whole_name("a[1][2:3]") == "a[1]");
  for (const char* name : {"w", "w[]", "w[1]", "w[1:]", "w[:2]", "w[2:1]", "w[-1:2]", "w[1:2]x",
                           "w[1:2:3]", "w[ 1:2]", "[", "]", "w[1:99999999999999999999]"}) {
    CAPTURE(name);
    CHECK_FALSE(parse_part_name(name).has_value());
    CHECK(whole_name(name) == name);
  }
}

TEST_CASE("state parts: whoever saved, anyone finds what he has" * doctest::test_suite("host")) {
  const Pieces none = {{-1, 0, 0, 0}};
  SavedParts saved;
  saved.add("w[10:30]", 20);
  saved.add("v", 30);
  saved.add("w[0:10]", 10);
  saved.add("u[0:10]", 10);
  saved.add("u[20:30]", 10);
  CHECK(pieces_of(saved, "w", 30) == Pieces{{2, 0, 0, 10}, {0, 0, 10, 20}});
  CHECK(pieces_of(saved, "w[5:15]", 10) == Pieces{{2, 5, 0, 5}, {0, 0, 5, 5}});
  CHECK(pieces_of(saved, "w[12:30]", 18) == Pieces{{0, 2, 0, 18}});
  CHECK(pieces_of(saved, "v", 30) == Pieces{{1, 0, 0, 30}});
  CHECK(pieces_of(saved, "v[7:9]", 2) == Pieces{{1, 7, 0, 2}});
  CHECK(pieces_of(saved, "u[22:25]", 3) == Pieces{{4, 2, 0, 3}});
  // The pieces miss elements, have too many, or do not exist.
  CHECK(pieces_of(saved, "w", 31) == none);
  CHECK(pieces_of(saved, "w", 29) == none);
  CHECK(pieces_of(saved, "v", 29) == none);
  CHECK(pieces_of(saved, "v[20:31]", 11) == none);
  CHECK(pieces_of(saved, "u", 30) == none);
  CHECK(pieces_of(saved, "u[5:25]", 20) == none);
  CHECK(pieces_of(saved, "t", 1) == none);
  // A parameter may have such a name.
  saved.add("t[3]", 4);
  CHECK(pieces_of(saved, "t[3]", 4) == Pieces{{5, 0, 0, 4}});
}
