#include "data/tokenizers/bpe_training.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "core/base/error.h"
#include "data/base/byte_alphabet.h"
#include "data/base/frequent_pairs.h"
#include "data/base/unicode.h"
#include "data/tokenizers/bpe_model.h"

namespace rw {

namespace {

// Special tokens and bytes, with everything that does not depend on the texts.
BpeParts untrained(const BpeOptions& options) {
  BpeParts parts;
  for (const std::string& token : options.special_tokens)
    parts.tokens.push_back({token, TokenType::control});
  if (!parts.tokens.empty()) parts.eos = {0}, parts.pad = 0;
  std::array<char32_t, 256> alphabet;
  for (size_t byte = 0; byte < 256; ++byte)
    alphabet[byte] = byte_character(static_cast<uint8_t>(byte));
  std::ranges::sort(alphabet);
  for (const char32_t character : alphabet)
    append_utf8(parts.tokens.emplace_back().text, character);
  if (options.nfc) parts.normalizers = {{.kind = Normalization::nfc}};
  parts.splits = {{options.pattern}};
  check(options.min_frequency > 0 && options.size >= static_cast<int64_t>(parts.tokens.size()),
        "train_bpe", "size must be at least {} and min_frequency positive, got {} and {}",
        parts.tokens.size(), options.size, options.min_frequency);
  return parts;
}

std::vector<CountedWord> count_words(std::span<const std::string> texts, const BpeModel& model) {
  std::unordered_map<std::string, int64_t> counts;
  TextSplitter splitter = model.splitter;
  for (const std::string& text : texts) {
    check(text.size() <= std::numeric_limits<int32_t>::max(), "train_bpe",
          "a text must have less than 2 GiB, got {} bytes", text.size());
    const std::string normal = model.normalizer.normalised(to_valid_utf8(text));
    for (const std::string_view word : splitter.split(normal)) ++counts[std::string(word)];
  }
  std::vector<CountedWord> words;
  for (const auto& [word, count] : counts) {
    std::vector<int32_t>& symbols = words.emplace_back().first;
    words.back().second = count;
    for (const char byte : word) symbols.push_back(model.byte_ids[static_cast<uint8_t>(byte)]);
  }
  return words;
}

}  // namespace

BpeParts train_bpe(std::span<const std::string> texts, const BpeOptions& options) {
  BpeParts parts = untrained(options);
  std::unordered_map<std::string, int32_t> ids;
  for (size_t id = 0; id < parts.tokens.size(); ++id)
    check(ids.emplace(parts.tokens[id].text, static_cast<int32_t>(id)).second, "train_bpe",
          "special tokens must differ from each other and from characters, got {:?} again",
          parts.tokens[id].text);
  const BpeModel model(parts);
  merge_frequent_pairs(count_words(texts, model), options.min_frequency,
                       [&](int32_t left, int32_t right) -> std::optional<int32_t> {
                         if (static_cast<int64_t>(parts.tokens.size()) >= options.size) return {};
                         const auto text = [&](int32_t id) -> const std::string& {
                           return parts.tokens[static_cast<size_t>(id)].text;
                         };
                         const auto [at, is_new] = ids.emplace(
                             text(left) + text(right), static_cast<int32_t>(parts.tokens.size()));
                         if (is_new) parts.tokens.push_back({at->first});
                         parts.merges.emplace_back(left, right);
                         return at->second;
                       });
  return parts;
}

}  // namespace rw
