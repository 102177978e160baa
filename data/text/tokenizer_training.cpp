#include "data/text/tokenizer_training.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "core/base/error.h"
#include "data/base/frequent_pairs.h"

namespace rw {

namespace {

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

std::vector<std::string> train(const WordCounts& words, int64_t size, int64_t min_frequency) {
  std::vector<std::string> tokens;
  std::unordered_map<std::string, int32_t> ids;
  const auto id_of = [&](const std::string& token) {
    const auto [at, is_new] = ids.emplace(token, static_cast<int32_t>(tokens.size()));
    if (is_new) tokens.push_back(token);
    return at->second;
  };
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) id_of(special);
  std::map<std::pair<bool, char32_t>, int32_t> alphabet;  // {continues, character}
  for (const auto& [word, count] : words)
    for (size_t i = 0; i < word.size(); ++i) alphabet[{i > 0, word[i]}] = 0;
  for (auto& [symbol, id] : alphabet) {
    std::string token = symbol.first ? "##" : "";
    append_utf8(token, symbol.second);
    id = id_of(token);
  }
  std::vector<CountedWord> counted;
  for (const auto& [word, count] : words) {
    std::vector<int32_t>& symbols = counted.emplace_back().first;
    counted.back().second = count;
    for (size_t i = 0; i < word.size(); ++i) symbols.push_back(alphabet[{i > 0, word[i]}]);
  }
  merge_frequent_pairs(std::move(counted), min_frequency,
                       [&](int32_t left, int32_t right) -> std::optional<int32_t> {
                         if (static_cast<int64_t>(tokens.size()) >= size) return std::nullopt;
                         const std::string& second = tokens[static_cast<size_t>(right)];
                         return id_of(tokens[static_cast<size_t>(left)] + second.substr(2));
                       });
  return tokens;
}

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
  auto tokens = train(words, options.size, options.min_frequency);
  check(static_cast<int64_t>(tokens.size()) <= options.size, "train_vocabulary",
        "size must be at least {} for the specials and the characters of the text, got {}; a "
        "smaller max_alphabet helps",
        tokens.size(), options.size);
  return Vocabulary(std::move(tokens));
}

}  // namespace rw
