#include "data/tokenizers/gguf_tokenizer.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "core/base/error.h"
#include "data/tokenizers/bpe_model.h"

namespace rw {

namespace {

// The patterns of a name (llm_tokenizer_bpe in llama.cpp's src/llama-vocab.cpp), and what llama.cpp
// derives from the name besides.
struct Patterns {
  const char* name;
  std::vector<const char*> splits;
  bool nfc = false, ignore_merges = false, add_bos = false;
};

const std::vector<Patterns>& known_patterns() {
  static const std::vector<Patterns> known = {
      {"gpt-2", {gpt2_pattern}},
      {"llama-bpe", {llama3_pattern}, false, true, true},
      {"qwen2", {qwen2_pattern}, true},
      {"smollm", {R"(\p{N})", gpt2_pattern}},
      {"default", {R"([\p{P}\$\+<=>\^~\|]+)", gpt2_pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      // The same under other names.
      {"llama3", {llama3_pattern}, false, true, true},
      {"starcoder", {R"(\p{N})", gpt2_pattern}},
      {"refact", {R"(\p{N})", gpt2_pattern}},
      {"command-r", {R"(\p{N})", gpt2_pattern}},
      {"mpt", {gpt2_pattern}},
      {"olmo", {gpt2_pattern}}};
  return known;
}

using TokenIds = std::unordered_map<std::string_view, int32_t>;

size_t characters_of(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// The merges that give the tokens of a SentencePiece model, by score. Of equal scores, the leftmost
// place comes first in SentencePiece. This is the order that Hugging Face's generate_merges makes
// for it: by the lengths of both halves, so that a run of blanks grows from its left end.
std::vector<std::pair<int32_t, int32_t>> merges_by_score(const std::vector<BpeToken>& tokens,
                                                         const std::vector<float>& scores,
                                                         const TokenIds& ids) {
  struct Candidate {
    float score;
    size_t left_length, right_length;  // characters
    std::pair<int32_t, int32_t> merge;
  };
  const auto find = [&](std::string_view text) {
    const auto found = ids.find(text);
    if (found == ids.end()) return -1;
    const TokenType type = tokens[static_cast<size_t>(found->second)].type;
    return is_special(type) || type == TokenType::byte ? -1 : found->second;
  };
  std::vector<Candidate> candidates;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view text = tokens[id].text;
    if (find(text) < 0) continue;
    for (size_t at = 1; at < text.size(); ++at) {
      if ((text[at] & 0xC0) == 0x80) continue;  // within a character
      const int32_t left = find(text.substr(0, at)), right = find(text.substr(at));
      if (left >= 0 && right >= 0)
        candidates.push_back({scores[id],
                              characters_of(text.substr(0, at)),
                              characters_of(text.substr(at)),
                              {left, right}});
    }
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    return std::tie(a.score, a.left_length, a.right_length) >
           std::tie(b.score, b.left_length, b.right_length);
  });
  std::vector<std::pair<int32_t, int32_t>> merges;
  for (const Candidate& candidate : candidates) merges.push_back(candidate.merge);
  return merges;
}

// The text of a token with other characters for spaces: llama.cpp looks for user_defined tokens in
// texts that still have spaces.
std::string replaced(std::string text, TokenType type, std::string_view from, std::string_view to) {
  if (type != TokenType::user_defined) return text;
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::pair<int32_t, int32_t> parse_merge(const std::string& merge, const TokenIds& ids) {
  const size_t space = merge.find(' ', 1);
  const std::string_view text = merge;
  const auto left = ids.find(text.substr(0, space)),
             right = space == merge.npos ? ids.end() : ids.find(text.substr(space + 1));
  check<FileError>(left != ids.end() && right != ids.end(), "from_gguf",
                   "a merge must be two tokens with a space between them, got {:?}", merge);
  return {left->second, right->second};
}

void take_bytes(const GgufTokenizer& metadata, const TokenIds& ids, BpeParts& parts) {
  const auto found = std::ranges::find(known_patterns(), metadata.pre, &Patterns::name);
  check<FileError>(found != known_patterns().end(), "from_gguf",
                   "tokenizer.ggml.pre must be a name that Rewind knows (gpt-2, llama-bpe, qwen2, "
                   "smollm, default), got {:?}; give a tokenizer.json instead",
                   metadata.pre);
  for (const char* pattern : found->splits) parts.splits.push_back({pattern});
  if (found->nfc) parts.normalizers = {{.kind = Normalization::nfc}};
  parts.ignore_merges = found->ignore_merges;
  parts.add_bos = metadata.add_bos_token.value_or(found->add_bos);
  for (const std::string& merge : metadata.merges) parts.merges.push_back(parse_merge(merge, ids));
}

void take_pieces(const GgufTokenizer& metadata, const TokenIds& ids, BpeParts& parts) {
  check<FileError>(metadata.scores.size() == parts.tokens.size() &&
                       std::ranges::all_of(metadata.scores, [](float s) { return s == s; }),
                   "from_gguf", "each of {} tokens must have a score that is a number, got {}",
                   parts.tokens.size(), metadata.scores.size());
  parts.byte_level = false;
  if (metadata.add_space_prefix) parts.space_prefix = SpacePrefix::always;
  parts.add_bos = metadata.add_bos_token.value_or(true);
  parts.merges = merges_by_score(parts.tokens, metadata.scores, ids);
}

}  // namespace

BpeParts from_gguf(const GgufTokenizer& metadata) {
  BpeParts parts;
  const auto& types = metadata.token_type;
  check<FileError>(types.empty() || types.size() == metadata.tokens.size(), "from_gguf",
                   "each of {} tokens must have a type, got {}", metadata.tokens.size(),
                   types.size());
  const bool is_pieces = metadata.model == "llama";
  for (size_t id = 0; id < metadata.tokens.size(); ++id) {
    const int32_t number = types.empty() ? 1 : types[id];
    check<FileError>(number >= 1 && number <= 6, "from_gguf", "types must be in [1, 6], got {}",
                     number);
    const auto type = static_cast<TokenType>(number);
    const std::string& text = metadata.tokens[id];
    parts.tokens.push_back({is_pieces ? replaced(text, type, " ", space_mark) : text, type});
  }
  TokenIds ids;
  for (size_t id = 0; id < parts.tokens.size(); ++id)
    ids.emplace(parts.tokens[id].text, static_cast<int32_t>(id));
  check<FileError>(is_pieces || metadata.model == "gpt2", "from_gguf",
                   "tokenizer.ggml.model must be \"gpt2\" or \"llama\", got {:?}; give a "
                   "tokenizer.json instead",
                   metadata.model);
  if (is_pieces)
    take_pieces(metadata, ids, parts);
  else
    take_bytes(metadata, ids, parts);
  parts.bos = metadata.bos_token_id;
  parts.pad = metadata.padding_token_id;
  for (const auto id : {metadata.eos_token_id, metadata.eot_token_id})
    if (id && std::ranges::find(parts.eos, *id) == parts.eos.end()) parts.eos.push_back(*id);
  parts.chat_template = metadata.chat_template;
  return parts;
}

GgufTokenizer to_gguf(const BpeParts& parts) {
  check(
      parts.scores.empty() && parts.suffix.empty(), "to_gguf",
      "a tokenizer must have merges and no tokens behind a text, got {} pieces of a unigram model "
      "and {} tokens",
      parts.scores.size(), parts.suffix.size());
  GgufTokenizer metadata;
  metadata.model = parts.byte_level ? "gpt2" : "llama";
  for (const BpeToken& token : parts.tokens) {
    // llama.cpp's converters fill gaps like this.
    if (token.is_gap()) {
      metadata.tokens.push_back(fmt::format("[PAD{}]", metadata.tokens.size()));
      metadata.token_type.push_back(static_cast<int32_t>(TokenType::unused));
      continue;
    }
    metadata.tokens.push_back(parts.byte_level ? token.text
                                               : replaced(token.text, token.type, space_mark, " "));
    metadata.token_type.push_back(static_cast<int32_t>(token.type));
  }
  const auto text = [&](int32_t id) { return parts.tokens[static_cast<size_t>(id)].text; };
  if (parts.byte_level) {
    const auto is_plain = [](const TextSplit& split, const char* pattern) {
      return split.pattern == pattern && split.behavior == SplitBehavior::isolated &&
             !split.invert && !split.literal;
    };
    const auto found = std::ranges::find_if(known_patterns(), [&](const Patterns& known) {
      return known.ignore_merges == parts.ignore_merges &&
             std::ranges::equal(parts.splits, known.splits, is_plain);
    });
    check(found != known_patterns().end() && parts.space_prefix == SpacePrefix::none, "to_gguf",
          "the patterns that cut words must have a name in llama.cpp, got {} of them",
          parts.splits.size());
    metadata.pre = found->name;
    for (const auto& [left, right] : parts.merges)
      metadata.merges.push_back(text(left) + ' ' + text(right));
  } else {
    metadata.add_space_prefix = parts.space_prefix != SpacePrefix::none;
    std::unordered_map<std::string, size_t> ranks;
    for (size_t rank = 0; rank < parts.merges.size(); ++rank)
      ranks.emplace(text(parts.merges[rank].first) + text(parts.merges[rank].second), rank);
    for (const BpeToken& token : parts.tokens) {
      const auto rank = ranks.find(token.text);
      metadata.scores.push_back(rank == ranks.end() ? 0 : -1 - static_cast<float>(rank->second));
    }
  }
  metadata.bos_token_id = parts.bos;
  metadata.padding_token_id = parts.pad;
  if (!parts.eos.empty()) metadata.eos_token_id = parts.eos[0];
  if (parts.eos.size() > 1) metadata.eot_token_id = parts.eos[1];
  metadata.add_bos_token = parts.add_bos;
  metadata.chat_template = parts.chat_template;
  return metadata;
}

}  // namespace rw
