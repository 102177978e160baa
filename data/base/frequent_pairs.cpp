#include "data/base/frequent_pairs.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

namespace rw {

namespace {

using Pair = std::pair<int32_t, int32_t>;

struct Candidate {
  int64_t count;
  Pair pair;
  // The most frequent pair comes first; among equals, the pair of the lowest ids.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

struct PairHash {
  size_t operator()(const Pair& p) const {
    return std::hash<uint64_t>{}(static_cast<uint64_t>(p.first) << 32 |
                                 static_cast<uint32_t>(p.second));
  }
};

struct PairEntry {
  int64_t count = 0;
  std::vector<size_t> words;  // that have it, or had it
};

class PairCounts {
 public:
  explicit PairCounts(std::vector<CountedWord> words) : words_(std::move(words)) {
    for (size_t i = 0; i < words_.size(); ++i) count_pairs(i, 1);
    for (const auto& [pair, entry] : pairs_) queue_.push({entry.count, pair});
  }

  // The most frequent pair, or nothing if none is there `min_frequency` times.
  std::optional<Pair> next(int64_t min_frequency) {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const int64_t count = pairs_[best.pair].count;
      if (count < min_frequency) continue;
      if (count == best.count) return best.pair;
      if (count < best.count) queue_.push({count, best.pair});  // grown pairs are queued already
    }
    return std::nullopt;
  }

  void replace(Pair pair, int32_t merged) {
    const auto holders = std::move(pairs_[pair].words);
    std::vector<Pair> grown;
    for (const size_t index : holders) {
      auto& symbols = words_[index].first;
      if (std::ranges::adjacent_find(
              symbols, [&](int32_t a, int32_t b) { return Pair(a, b) == pair; }) == symbols.end())
        continue;
      count_pairs(index, -1);
      size_t kept = 0;
      for (size_t i = 0; i < symbols.size(); ++i) {
        const bool found = i + 1 < symbols.size() && Pair(symbols[i], symbols[i + 1]) == pair;
        symbols[kept++] = found ? merged : symbols[i];
        i += found;
      }
      symbols.resize(kept);
      count_pairs(index, 1);
      for (size_t i = 0; i + 1 < kept; ++i)
        if (symbols[i] == merged || symbols[i + 1] == merged)
          grown.emplace_back(symbols[i], symbols[i + 1]);
    }
    std::ranges::sort(grown);
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    for (const Pair& p : grown) queue_.push({pairs_[p].count, p});
  }

 private:
  // Adds (sign 1) or removes (-1) the pairs of a word.
  void count_pairs(size_t index, int sign) {
    const auto& [symbols, count] = words_[index];
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      PairEntry& entry = pairs_[{symbols[i], symbols[i + 1]}];
      entry.count += sign * count;
      if (sign > 0 && (entry.words.empty() || entry.words.back() != index))
        entry.words.push_back(index);
    }
  }

  std::vector<CountedWord> words_;
  std::unordered_map<Pair, PairEntry, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

void merge_frequent_pairs(
    std::vector<CountedWord> words, int64_t min_frequency,
    const std::function<std::optional<int32_t>(int32_t left, int32_t right)>& merge) {
  PairCounts counts(std::move(words));
  while (const auto pair = counts.next(min_frequency)) {
    const auto merged = merge(pair->first, pair->second);
    if (!merged) return;
    counts.replace(*pair, *merged);
  }
}

}  // namespace rw
