#include "data/tokenizers/bpe_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "data/base/byte_alphabet.h"
#include "data/base/unicode.h"

namespace rw {

namespace {

constexpr size_t most_bpe_tokens = size_t{1} << 22;

// The byte of "<0x0A>", or -1.
int byte_of(const std::string& token) {
  static constexpr std::string_view digits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const size_t high = digits.find(token[3]), low = digits.find(token[4]);
  return high == digits.npos || low == digits.npos ? -1 : static_cast<int>(16 * high + low);
}

}  // namespace

BpeModel::BpeModel(BpeParts from)
    : parts(std::move(from)),
      merges(parts.merges.size()),
      normalizer(parts.normalizers),
      early_splitter(parts.early_splits),
      splitter(parts.splits) {
  const size_t count = parts.tokens.size();
  check<FileError>(count > 0 && count <= most_bpe_tokens, "BpeTokenizer",
                   "there must be 1 to {} tokens, got {}", most_bpe_tokens, count);
  byte_ids.fill(-1);
  for (size_t i = 0; i < count; ++i) add_token(static_cast<int32_t>(i));
  check<FileError>(is_unigram() || parts.byte_level || std::ranges::count(byte_ids, -1) == 0,
                   "BpeTokenizer",
                   "a tokenizer that falls back to bytes must have the tokens <0x00> to <0xFF>, it "
                   "lacks {}",
                   std::ranges::count(byte_ids, -1));
  for (const auto id : {parts.bos, parts.eos_token, parts.pad, parts.unknown})
    check<FileError>(!id || (*id >= 0 && static_cast<size_t>(*id) < count), "BpeTokenizer",
                     "ids of special tokens must be in [0, {}), got {}", count, id.value_or(0));
  for (const std::vector<int32_t>& ends : {parts.eos, parts.prefix, parts.suffix})
    for (const int32_t id : ends)
      check<FileError>(id >= 0 && static_cast<size_t>(id) < count, "BpeTokenizer",
                       "ids around a text must be in [0, {}), got {}", count, id);
  add_merges();
  add_pieces();
}

void BpeModel::add_token(int32_t id) {
  const BpeToken& token = parts.tokens[static_cast<size_t>(id)];
  check<FileError>(is_valid_utf8(token.text), "BpeTokenizer",
                   "tokens must be UTF-8, got {:?} with the id {}", token.text, id);
  bytes.push_back(bytes_of(token));
  if (token.is_gap()) return;
  const auto [at, is_new] = ids.emplace(token.text, id);
  check<FileError>(is_new, "BpeTokenizer", "tokens must differ, got {:?} with the ids {} and {}",
                   token.text, at->second, id);
  const bool is_byte =
      parts.byte_level ? token.type == TokenType::normal : byte_of(token.text) >= 0;
  if (is_byte && bytes.back().size() == 1) byte_ids[static_cast<uint8_t>(bytes.back()[0])] = id;
  if (!is_added(token.type)) return;
  if (token.normalized)
    normalised_added.add(normalizer.normalised(token.text), id);
  else
    added.add(token.text, id);
}

std::string BpeModel::bytes_of(const BpeToken& token, std::string_view blank) const {
  const std::string text =
      is_added(token.type) && token.normalized ? normalizer.normalised(token.text) : token.text;
  if (parts.byte_level)
    return is_added(token.type) ? text : characters_to_bytes(token.text).value_or(token.text);
  const bool has_bytes = !is_unigram() || parts.byte_fallback;
  if (const int byte = byte_of(token.text); byte >= 0 && has_bytes && !is_added(token.type))
    return std::string(1, static_cast<char>(byte));
  return replace_all(text, space_mark, blank);
}

void BpeModel::add_merges() {
  for (const auto& [left, right] : parts.merges) {
    for (const int32_t id : {left, right})
      check<FileError>(id >= 0 && static_cast<size_t>(id) < parts.tokens.size(), "BpeTokenizer",
                       "merges must be of ids in [0, {}), got {}", parts.tokens.size(), id);
    const std::string &first = parts.tokens[static_cast<size_t>(left)].text,
                      &second = parts.tokens[static_cast<size_t>(right)].text;
    const auto merged = ids.find(first + second);
    check<FileError>(merged != ids.end() && !first.empty() && !second.empty(), "BpeTokenizer",
                     "a merge must make a token that there is, got {:?} and {:?}", first, second);
    check<FileError>(merges.add({left, right, merged->second}), "BpeTokenizer",
                     "merges must differ, got {:?} and {:?} again", first, second);
  }
}

// As the library does it, a character without a piece is as good as 10 below the worst piece.
void BpeModel::add_pieces() {
  if (!is_unigram()) return;
  check<FileError>(parts.scores.size() <= parts.tokens.size() && parts.merges.empty(),
                   "BpeTokenizer",
                   "a unigram model must have a score for each piece and no merges, got {} scores, "
                   "{} tokens and {} merges",
                   parts.scores.size(), parts.tokens.size(), parts.merges.size());
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < parts.scores.size(); ++id) {
    if (!std::isfinite(parts.scores[id])) continue;
    pieces.add(parts.tokens[id].text, static_cast<int32_t>(id));
    lowest = std::min(lowest, parts.scores[id]);
  }
  unknown_score = lowest - 10;
}

std::string BpeModel::with_space(std::string_view text, bool is_first) const {
  const std::string_view space = parts.byte_level ? " " : space_mark;
  std::string marked;
  if (parts.metaspace) text = marked = replace_all(text, " ", space_mark);
  const bool wants_space = parts.space_prefix == SpacePrefix::unless_space ||
                           (parts.space_prefix == SpacePrefix::first_unless_space && is_first);
  return std::string(wants_space && !text.starts_with(space) ? space : "").append(text);
}

}  // namespace rw
