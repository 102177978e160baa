#include "data/text/tokenizer_training.h"

#include <algorithm>
#include <map>
#include <queue>
#include <unordered_map>

#include "core/base/error.h"

namespace rw {

namespace {

struct Word {
  std::vector<int32_t> symbols;
  int64_t count;
};

using WordCounts = std::map<std::u32string, int64_t>;  // sorted: the result is deterministic

WordCounts count_words(std::span<const Document> documents, const TokenizerOptions& options) {
  std::unordered_map<std::u32string, int64_t> counts;
  std::u32string word;
  const auto count = [&](std::span<const Character> characters) {
    if (characters.size() > static_cast<size_t>(options.max_input_chars)) return;
    word.clear();
    for (const Character& c : characters) word += c.code;
    ++counts[word];
  };
  for (const Document& document : documents)
    for (const std::string& line : document) for_each_word(line, options.lower_case, count);
  return WordCounts(counts.begin(), counts.end());
}

// Leaves out the words that need more than the `limit` most frequent characters.
void limit_alphabet(WordCounts& words, int64_t limit) {
  std::map<char32_t, int64_t> counts;
  for (const auto& [word, count] : words)
    for (const char32_t c : word) counts[c] += count;
  std::vector<std::pair<int64_t, char32_t>> order;
  for (const auto& [c, count] : counts) order.emplace_back(-count, c);
  std::ranges::sort(order);
  for (size_t i = static_cast<size_t>(limit); i < order.size(); ++i) counts.erase(order[i].second);
  std::erase_if(words, [&](const auto& entry) {
    return !std::ranges::all_of(entry.first, [&](char32_t c) { return counts.contains(c); });
  });
}

class Trainer {
 public:
  explicit Trainer(const WordCounts& words) {
    for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) id_of(special);
    std::map<std::pair<bool, char32_t>, int32_t> alphabet;  // {continues, character}
    for (const auto& [word, count] : words)
      for (size_t i = 0; i < word.size(); ++i) alphabet[{i > 0, word[i]}] = 0;
    for (auto& [symbol, id] : alphabet) {
      std::string token = symbol.first ? "##" : "";
      append_utf8(token, symbol.second);
      id = id_of(token);
    }
    for (const auto& [word, count] : words) {
      Word& split = words_.emplace_back();
      split.count = count;
      for (size_t i = 0; i < word.size(); ++i) split.symbols.push_back(alphabet[{i > 0, word[i]}]);
      count_pairs(words_.size() - 1, 1);
    }
    for (const auto& [pair, entry] : pairs_) queue_.push({entry.count, pair});
  }

  std::vector<std::string> train(int64_t size, int64_t min_frequency) {
    while (static_cast<int64_t>(tokens_.size()) < size && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const int64_t count = pairs_[best.pair].count;
      if (count < min_frequency) continue;
      if (count == best.count) {
        merge(best.pair);
      } else if (count < best.count) {
        queue_.push({count, best.pair});  // grown pairs are queued already
      }
    }
    return std::move(tokens_);
  }

 private:
  using Pair = std::pair<int32_t, int32_t>;
  struct Candidate {
    int64_t count;
    Pair pair;
    // The most frequent pair comes first; among equals, the pair of the oldest tokens.
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

  int32_t id_of(const std::string& token) {
    const auto [at, is_new] = ids_.emplace(token, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return at->second;
  }

  // Adds (sign 1) or removes (-1) the pairs of a word.
  void count_pairs(size_t index, int sign) {
    const Word& word = words_[index];
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      PairEntry& entry = pairs_[{word.symbols[i], word.symbols[i + 1]}];
      entry.count += sign * word.count;
      if (sign > 0 && (entry.words.empty() || entry.words.back() != index))
        entry.words.push_back(index);
    }
  }

  void merge(Pair pair) {
    const std::string& second = tokens_[static_cast<size_t>(pair.second)];
    const int32_t merged = id_of(tokens_[static_cast<size_t>(pair.first)] + second.substr(2));
    const auto holders = std::move(pairs_[pair].words);
    std::vector<Pair> grown;
    for (const size_t index : holders) {
      auto& symbols = words_[index].symbols;
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

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, PairEntry, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

Vocabulary train_vocabulary(std::span<const Document> documents, const VocabularyOptions& options) {
  check(options.size > 5 && options.min_frequency > 0 && options.max_alphabet > 0,
        "train_vocabulary",
        "size must be above 5, min_frequency and max_alphabet positive, got {}, {} and {}",
        options.size, options.min_frequency, options.max_alphabet);
  WordCounts words = count_words(documents, options.tokenizer);
  check(!words.empty(), "train_vocabulary", "the text must have a word, got {} documents without",
        documents.size());
  limit_alphabet(words, options.max_alphabet);
  auto tokens = Trainer(words).train(options.size, options.min_frequency);
  check(static_cast<int64_t>(tokens.size()) <= options.size, "train_vocabulary",
        "size must be at least {} for the specials and the characters of the text, got {}; a "
        "smaller max_alphabet helps",
        tokens.size(), options.size);
  return Vocabulary(std::move(tokens));
}

}  // namespace rw
