#include "data/tokenizers/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "core/base/error.h"
#include "data/base/unicode.h"
#include "data/tokenizers/gguf_conventions.h"

namespace rw {

namespace {

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
  const GgufPatterns* const found = find_gguf_patterns(metadata.pre);
  check<FileError>(found != nullptr, "from_gguf",
                   "tokenizer.ggml.pre must be a name that Rewind knows (gpt-2, llama-bpe, qwen2, "
                   "smollm, default ...), got {:?}; name the model's tokenizer.json (--tokenizer)",
                   metadata.pre);
  for (const char* pattern : found->splits) parts.splits.push_back({pattern});
  if (found->nfc) parts.normalizers = {{.kind = Normalization::nfc}};
  parts.ignore_merges = found->ignore_merges;
  parts.add_bos = metadata.add_bos_token.value_or(found->add_bos);
  for (const std::string& merge : metadata.merges) parts.merges.push_back(parse_merge(merge, ids));
}

void check_scores(const GgufTokenizer& metadata) {
  check<FileError>(metadata.scores.size() == metadata.tokens.size() &&
                       std::ranges::all_of(metadata.scores, [](float s) { return s == s; }),
                   "from_gguf", "each of {} tokens must have a score that is a number, got {}",
                   metadata.tokens.size(), metadata.scores.size());
}

const NormalizerStep prepend_mark = {.kind = Normalization::prepend,
                                     .content = std::string(space_mark)};

void take_pieces(const GgufTokenizer& metadata, const TokenIds& ids, BpeParts& parts) {
  check_scores(metadata);
  parts.byte_level = false;
  if (metadata.add_space_prefix.value_or(true)) {
    parts.normalizers = {prepend_mark};
    parts.strip = SpaceStrip::one;
  }
  parts.normalizers.push_back(mark_spaces);
  parts.add_bos = metadata.add_bos_token.value_or(true);
  parts.merges = merges_by_score(parts.tokens, metadata.scores, ids);
}

NormalizerStep replace_step(const char* pattern, const char* content) {
  return {.kind = Normalization::replace, .pattern = pattern, .content = content};
}

// These make of a text what llama.cpp makes before a unigram model sees it
// (llm_tokenizer_ugm_session in its src/llama-vocab.cpp). Where extra spaces are removed, each word
// begins with one, whatever add_space_prefix says; else a text of spaces only gets no other one.
std::vector<NormalizerStep> unigram_normalizers(const GgufTokenizer& metadata) {
  std::vector<NormalizerStep> steps;
  if (!metadata.precompiled_charsmap.empty())
    steps.push_back(
        {.kind = Normalization::charsmap_longest, .pattern = metadata.precompiled_charsmap});
  if (metadata.remove_extra_whitespaces) {
    steps.push_back(replace_step(" {2,}", " "));
    steps.push_back(replace_step(R"(\A | \z)", ""));
    steps.push_back({.kind = Normalization::prepend, .content = " "});
  } else if (metadata.add_space_prefix.value_or(false)) {
    steps.push_back(replace_step(R"(\A(?= *[^ ]))", " "));
  }
  if (metadata.escape_whitespaces) steps.push_back(mark_spaces);
  return steps;
}

// The ids are those that llama.cpp takes where a file has none. Only normal and unused tokens are
// found in texts by their scores; user_defined ones cost nothing.
void take_unigram(const GgufTokenizer& metadata, BpeParts& parts) {
  check_scores(metadata);
  parts.byte_level = false;
  parts.normalizers = unigram_normalizers(metadata);
  if (metadata.add_space_prefix.value_or(false)) parts.strip = SpaceStrip::one;
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    const TokenType type = parts.tokens[id].type;
    parts.scores.push_back(type == TokenType::user_defined ? 0
                           : type == TokenType::normal || type == TokenType::unused
                               ? double{metadata.scores[id]}
                               : -std::numeric_limits<double>::infinity());
  }
  const auto or_else = [&](std::optional<int32_t> id, int32_t usual) {
    return id || static_cast<size_t>(usual) >= parts.tokens.size() ? id : std::optional(usual);
  };
  parts.unknown = or_else(metadata.unknown_token_id, 2);
  parts.pad = or_else(metadata.padding_token_id, 0);
  if (const auto eos = or_else(metadata.eos_token_id, 1)) parts.eos = {*eos};
  parts.add_bos = metadata.add_bos_token.value_or(false);
}

// The ids that end a generated text: those that a file lists, or else those that it names and those
// of tokens with a known text. In a model that ends its answers by <|return|> or <|call|>,
// <|end|> only ends a message (gpt-oss).
std::vector<int32_t> ends_in(const GgufTokenizer& metadata) {
  std::vector<int32_t> ends = metadata.eos_token_ids;
  if (!ends.empty()) return ends;
  const auto add = [&](std::optional<int32_t> id) {
    if (id && std::ranges::find(ends, *id) == ends.end()) ends.push_back(*id);
  };
  for (const auto id : {metadata.eos_token_id, metadata.eot_token_id, metadata.eom_token_id})
    add(id);
  std::map<std::string_view, int32_t> found;
  for (size_t id = 0; id < metadata.tokens.size(); ++id)
    if (std::ranges::find(texts_of_ends, metadata.tokens[id]) != std::end(texts_of_ends))
      found.emplace(metadata.tokens[id], static_cast<int32_t>(id));
  if (found.contains("<|return|>") && found.contains("<|call|>")) found.erase("<|end|>");
  for (const auto& [text, id] : found) add(id);
  return ends;
}

}  // namespace

BpeParts from_gguf(const GgufTokenizer& metadata) {
  BpeParts parts;
  const auto& types = metadata.token_type;
  check<FileError>(types.empty() || types.size() == metadata.tokens.size(), "from_gguf",
                   "each of {} tokens must have a type, got {}", metadata.tokens.size(),
                   types.size());
  const bool is_pieces = metadata.model == "llama", is_unigram = metadata.model == "t5";
  for (size_t id = 0; id < metadata.tokens.size(); ++id) {
    const int32_t number = types.empty() ? 1 : types[id];
    check<FileError>(number >= 1 && number <= 6, "from_gguf", "types must be in [1, 6], got {}",
                     number);
    const auto type = static_cast<TokenType>(number);
    const std::string& text = metadata.tokens[id];
    parts.tokens.push_back({text.empty() ? fmt::format("[EMPTY_{}]", id) : text, type});
  }
  TokenIds ids;
  for (size_t id = 0; id < parts.tokens.size(); ++id)
    ids.emplace(parts.tokens[id].text, static_cast<int32_t>(id));
  check<FileError>(is_pieces || is_unigram || metadata.model == "gpt2", "from_gguf",
                   "tokenizer.ggml.model must be \"gpt2\", \"llama\" or \"t5\", got {:?}; name the "
                   "model's tokenizer.json (--tokenizer)",
                   metadata.model);
  parts.pad = metadata.padding_token_id;
  if (is_unigram)
    take_unigram(metadata, parts);
  else if (is_pieces)
    take_pieces(metadata, ids, parts);
  else
    take_bytes(metadata, ids, parts);
  parts.bos = metadata.bos_token_id;
  for (const int32_t id : ends_in(metadata))
    if (std::ranges::find(parts.eos, id) == parts.eos.end()) parts.eos.push_back(id);
  parts.eos_token = metadata.eos_token_id;
  if (metadata.add_eos_token.value_or(is_unigram) && !parts.eos.empty())
    parts.suffix = {parts.eos.front()};
  parts.chat_template = metadata.chat_template;
  return parts;
}

namespace {

std::string token_text(const BpeParts& parts, int32_t id) {
  return parts.tokens[static_cast<size_t>(id)].text;
}

// llama.cpp has no normal forms; NFC changes few texts.
void give_bytes(const BpeParts& parts, GgufTokenizer& metadata) {
  const auto is_plain = [](const TextSplit& split, const char* pattern) {
    return split.pattern == pattern && split.behavior == SplitBehavior::isolated && !split.invert &&
           !split.literal;
  };
  const auto found = std::ranges::find_if(gguf_patterns(), [&](const GgufPatterns& known) {
    return known.ignore_merges == parts.ignore_merges &&
           std::ranges::equal(parts.splits, known.splits, is_plain);
  });
  check(found != gguf_patterns().end() && parts.space_prefix == SpacePrefix::none, "to_gguf",
        "the patterns that cut words must have a name in llama.cpp, got {} of them",
        parts.splits.size());
  metadata.pre = found->names.front();
  for (const auto& [left, right] : parts.merges)
    metadata.merges.push_back(token_text(parts, left) + ' ' + token_text(parts, right));
}

void give_pieces(const BpeParts& parts, GgufTokenizer& metadata) {
  metadata.add_space_prefix =
      parts.space_prefix != SpacePrefix::none ||
      std::ranges::find(parts.normalizers, prepend_mark) != parts.normalizers.end();
  std::unordered_map<std::string, size_t> ranks;
  for (size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const auto [left, right] = parts.merges[rank];
    ranks.emplace(token_text(parts, left) + token_text(parts, right), rank);
  }
  for (const BpeToken& token : parts.tokens) {
    const auto rank = ranks.find(token.text);
    metadata.scores.push_back(rank == ranks.end() ? 0 : -1 - static_cast<float>(rank->second));
  }
}

// The steps have a form if llama.cpp would make the same of it.
void give_unigram(const BpeParts& parts, GgufTokenizer& metadata) {
  if (!parts.normalizers.empty() && parts.normalizers[0].kind == Normalization::charsmap_longest)
    metadata.precompiled_charsmap = parts.normalizers[0].pattern;
  metadata.add_space_prefix = parts.strip != SpaceStrip::none;
  metadata.escape_whitespaces =
      !parts.normalizers.empty() && parts.normalizers.back() == mark_spaces;
  const auto is_same = [&] { return unigram_normalizers(metadata) == parts.normalizers; };
  metadata.remove_extra_whitespaces = !is_same();
  check(is_same() && !parts.metaspace && !parts.byte_level && parts.splits.empty() &&
            !parts.byte_fallback,
        "to_gguf",
        "the steps around a unigram model must be those of llama.cpp, got {} normalizers and {} "
        "patterns of the library tokenizers",
        parts.normalizers.size(), parts.splits.size());
  for (const double score : parts.scores)
    metadata.scores.push_back(std::isfinite(score) ? static_cast<float>(score) : 0);
  metadata.scores.resize(parts.tokens.size());
  metadata.unknown_token_id = parts.unknown;
}

// llama.cpp looks for user_defined tokens in texts that still have spaces.
std::string text_of_piece(const BpeToken& token, const std::set<std::string_view>& texts) {
  if (token.type != TokenType::user_defined) return token.text;
  std::string spaced = replace_all(token.text, space_mark, " ");
  return texts.contains(spaced) ? token.text : spaced;
}

// The tokens that end a generated text, the one that also ends documents first.
std::vector<int32_t> ends_of(const BpeParts& parts) {
  std::vector<int32_t> ends = parts.eos;
  if (const auto found = std::ranges::find(ends, parts.eos_token.value_or(-1)); found != ends.end())
    std::rotate(ends.begin(), found, found + 1);
  return ends;
}

}  // namespace

GgufTokenizer to_gguf(const BpeParts& parts) {
  const std::vector<int32_t> ends = ends_of(parts), eos(ends.begin(), ends.begin() + !ends.empty());
  check(parts.prefix.empty() && (parts.suffix.empty() || parts.suffix == eos), "to_gguf",
        "around a text there must be bos before and eos behind it at most, got {} more before it "
        "and {} behind",
        parts.prefix.size(), parts.suffix.size());
  const bool is_unigram = !parts.scores.empty();
  GgufTokenizer metadata;
  metadata.model = is_unigram ? "t5" : parts.byte_level ? "gpt2" : "llama";
  std::set<std::string_view> texts;
  for (const BpeToken& token : parts.tokens) texts.insert(token.text);
  for (const BpeToken& token : parts.tokens) {
    // llama.cpp's converters fill gaps like this.
    if (token.is_gap()) {
      metadata.tokens.push_back(fmt::format("[PAD{}]", metadata.tokens.size()));
      metadata.token_type.push_back(static_cast<int32_t>(TokenType::unused));
      continue;
    }
    metadata.tokens.push_back(metadata.model == "llama" ? text_of_piece(token, texts) : token.text);
    metadata.token_type.push_back(static_cast<int32_t>(token.type));
  }
  if (is_unigram)
    give_unigram(parts, metadata);
  else if (parts.byte_level)
    give_bytes(parts, metadata);
  else
    give_pieces(parts, metadata);
  metadata.bos_token_id = parts.bos;
  metadata.padding_token_id = parts.pad;
  if (!ends.empty()) metadata.eos_token_id = ends[0];
  if (ends.size() > 1) metadata.eot_token_id = ends[1];
  if (ends.size() > 2) metadata.eom_token_id = ends[2];
  if (ends_in(metadata) != ends) metadata.eos_token_ids = ends;
  metadata.add_bos_token = parts.add_bos;
  metadata.add_eos_token = !parts.suffix.empty();
  metadata.chat_template = parts.chat_template;
  return metadata;
}

}  // namespace rw
