#include "data/tokenizers/bpe_model.h"

#include <unicode/normalizer2.h>

#include <algorithm>

#include "core/base/error.h"
#include "data/base/unicode.h"
#include "data/tokenizers/byte_alphabet.h"

namespace rw {

namespace {

constexpr size_t most_bpe_tokens = size_t{1} << 22;

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t done = 0;;) {
    const size_t at = text.find(from, done);
    result += text.substr(done, at - done);
    if (at == text.npos) return result;
    result += to;
    done = at + from.size();
  }
}

// The byte of "<0x0A>", or -1.
int byte_of(const std::string& token) {
  static constexpr std::string_view digits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const size_t high = digits.find(token[3]), low = digits.find(token[4]);
  return high == digits.npos || low == digits.npos ? -1 : static_cast<int>(16 * high + low);
}

std::string to_nfc(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  std::string result;
  icu::StringByteSink<std::string> sink(&result, static_cast<int32_t>(text.size()));
  if (U_SUCCESS(status))
    nfc->normalizeUTF8(0, {text.data(), static_cast<int32_t>(text.size())}, sink, nullptr, status);
  check<Error>(U_SUCCESS(status), "BpeTokenizer", "ICU must have its normalisation data, got {}",
               u_errorName(status));
  return result;
}

}  // namespace

BpeModel::BpeModel(BpeParts from)
    : parts(std::move(from)), merges(parts.merges.size()), splitter(parts.splits) {
  const size_t count = parts.tokens.size();
  check<FileError>(count > 0 && count <= most_bpe_tokens, "BpeTokenizer",
                   "there must be 1 to {} tokens, got {}", most_bpe_tokens, count);
  byte_ids.fill(-1);
  for (size_t i = 0; i < count; ++i) {
    const BpeToken& token = parts.tokens[i];
    const auto id = static_cast<int32_t>(i);
    check<FileError>(is_valid_utf8(token.text), "BpeTokenizer",
                     "tokens must be UTF-8, got {:?} with the id {}", token.text, id);
    const auto [at, is_new] = ids.emplace(token.text, id);
    check<FileError>(is_new, "BpeTokenizer", "tokens must differ, got {:?} with the ids {} and {}",
                     token.text, at->second, id);
    bytes.push_back(bytes_of(token));
    const bool is_byte =
        parts.byte_level ? token.type == TokenType::normal : byte_of(token.text) >= 0;
    if (is_byte && bytes.back().size() == 1) byte_ids[static_cast<uint8_t>(bytes.back()[0])] = id;
    if (is_added(token.type)) {
      if (token.normalized)
        normalised_added.add(normalised(token.text), id);
      else
        added.add(token.text, id);
    }
  }
  check<FileError>(parts.byte_level || std::ranges::count(byte_ids, -1) == 0, "BpeTokenizer",
                   "a tokenizer that falls back to bytes must have the tokens <0x00> to <0xFF>, it "
                   "lacks {}",
                   std::ranges::count(byte_ids, -1));
  for (const auto id : {parts.bos, parts.pad})
    check<FileError>(!id || (*id >= 0 && static_cast<size_t>(*id) < count), "BpeTokenizer",
                     "ids of special tokens must be in [0, {}), got {}", count, id.value_or(0));
  for (const int32_t id : parts.eos)
    check<FileError>(id >= 0 && static_cast<size_t>(id) < count, "BpeTokenizer",
                     "ids that end a text must be in [0, {}), got {}", count, id);
  add_merges();
}

std::string BpeModel::bytes_of(const BpeToken& token) const {
  if (parts.byte_level)
    return is_added(token.type) ? token.text : characters_to_bytes(token.text).value_or(token.text);
  if (const int byte = byte_of(token.text); byte >= 0 && !is_added(token.type))
    return std::string(1, static_cast<char>(byte));
  return replaced(token.text, space_mark, " ");
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

std::string BpeModel::normalised(std::string_view text) const {
  if (text.empty()) return {};
  std::string result(text);
  if (parts.nfc && std::ranges::any_of(text, [](char c) { return c < 0; })) result = to_nfc(text);
  if (parts.space_prefix == SpacePrefix::always) result.insert(0, 1, ' ');
  return parts.byte_level ? result : replaced(result, " ", space_mark);
}

std::string BpeModel::with_space(std::string_view text, bool is_first) const {
  const std::string_view space = parts.byte_level ? " " : space_mark;
  const bool wants_space = parts.space_prefix == SpacePrefix::unless_space ||
                           (parts.space_prefix == SpacePrefix::first_unless_space && is_first);
  return std::string(wants_space && !text.starts_with(space) ? space : "").append(text);
}

}  // namespace rw
