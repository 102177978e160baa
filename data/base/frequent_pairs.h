// Finds the merges of byte-pair encodings.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace rw {

// A word as ids of its symbols, and how often a text has it.
using CountedWord = std::pair<std::vector<int32_t>, int64_t>;

// Merges the most frequent pair of symbols in all words, again and again (Sennrich et al. 2016);
// among equals, the pair of the lowest ids. merge(left, right) returns the id that takes the place
// of a pair, or nothing to end. It also ends when no pair is there `min_frequency` times.
void merge_frequent_pairs(
    std::vector<CountedWord> words, int64_t min_frequency,
    const std::function<std::optional<int32_t>(int32_t left, int32_t right)>& merge);

}  // namespace rw
