#include "data/text/tokenizer.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"

namespace rw {

namespace {

// Splits a word without spaces at its punctuation.
void visit_parts(const Characters& word,
                 const std::function<void(std::span<const Character>)>& visit) {
  for (auto part = word.begin(); part != word.end();) {
    auto end = part + 1;
    if (!is_punctuation(part->code))
      end =
          std::find_if(end, word.end(), [](const Character& c) { return is_punctuation(c.code); });
    visit({part, end});
    part = end;
  }
}

}  // namespace

void for_each_word(std::string_view text, bool lower,
                   const std::function<void(std::span<const Character>)>& visit) {
  check(text.size() <= std::numeric_limits<int32_t>::max(), "Tokenizer",
        "a text must have less than 2 GiB, got {} bytes", text.size());
  Characters word;
  const auto finish_word = [&] {
    if (word.empty()) return;
    visit_parts(lower ? strip_accents(lower_case(word)) : word, visit);
    word.clear();
  };
  Character c;
  for (size_t position = 0; position < text.size();) {
    if (!next_character(text, position, c) || is_ignored(c.code)) continue;
    const bool alone = is_cjk(c.code);
    if (alone || is_space(c.code)) finish_word();
    if (!is_space(c.code)) word.push_back(c);
    if (alone) finish_word();
  }
  finish_word();
}

void truncate_pair(std::vector<Token>& first, std::vector<Token>& second, size_t total,
                   Truncation truncation) {
  const size_t excess =
      first.size() + second.size() - std::min(first.size() + second.size(), total);
  for (size_t i = 0; i < excess; ++i) {
    const bool longer = first.size() > second.size();
    auto& from =
        truncation == Truncation::only_first || (truncation == Truncation::longest_first && longer)
            ? first
            : second;
    check(!from.empty(), "Tokenizer",
          "the text to truncate must have at least {} tokens more, use Truncation::longest_first",
          excess - i);
    from.pop_back();
  }
}

Tokenizer::Tokenizer(Vocabulary vocabulary, TokenizerOptions options)
    : vocabulary_(std::move(vocabulary)), options_(options) {
  check(options_.max_input_chars > 0, "Tokenizer", "max_input_chars must be positive, got {}",
        options_.max_input_chars);
}

// Takes the longest match first, from the left. A word is unknown as a whole if any part has no
// match.
void Tokenizer::append_pieces(std::span<const Character> word, size_t base,
                              std::vector<Token>& out) const {
  const Token unknown{vocabulary_.unk, base + word.front().begin, base + word.back().end};
  if (word.size() > static_cast<size_t>(options_.max_input_chars)) {
    out.push_back(unknown);
    return;
  }
  std::string bytes;
  std::vector<size_t> at{0};  // where each character starts in `bytes`, and their end
  for (const Character& c : word) {
    append_utf8(bytes, c.code);
    at.push_back(bytes.size());
  }
  const size_t before = out.size();
  for (size_t start = 0; start < word.size();) {
    size_t end = std::min(word.size(), start + vocabulary_.longest());
    int32_t id = -1;
    for (; end > start; --end) {
      const auto piece = std::string_view(bytes).substr(at[start], at[end] - at[start]);
      id = start == 0 ? vocabulary_.id(piece) : vocabulary_.continuing_id(piece);
      if (id >= 0) break;
    }
    if (id < 0) {
      out.resize(before);
      out.push_back(unknown);
      return;
    }
    out.push_back({id, base + word[start].begin, base + word[end - 1].end});
    start = end;
  }
}

void Tokenizer::append_words(std::string_view text, size_t base, std::vector<Token>& out) const {
  for_each_word(text, options_.lower_case,
                [&](std::span<const Character> word) { append_pieces(word, base, out); });
}

std::vector<Token> Tokenizer::tokenize(std::string_view text) const {
  const int32_t special[] = {vocabulary_.pad, vocabulary_.unk, vocabulary_.cls, vocabulary_.sep,
                             vocabulary_.mask};
  std::vector<Token> out;
  size_t done = 0;
  for (size_t i = 0; options_.special_tokens && i < text.size(); ++i) {
    if (text[i] != '[') continue;
    for (const int32_t id : special) {
      const std::string& token = vocabulary_.token(id);
      if (!text.substr(i).starts_with(token)) continue;
      append_words(text.substr(done, i - done), done, out);
      done = i + token.size();
      out.push_back({id, i, done});
      i = done - 1;
      break;
    }
  }
  append_words(text.substr(done), done, out);
  return out;
}

std::vector<int32_t> Tokenizer::ids(std::string_view text) const {
  std::vector<int32_t> result;
  for (const Token& token : tokenize(text)) result.push_back(token.id);
  return result;
}

namespace {

void append_token(Encoding& encoding, int32_t id, int32_t type, size_t begin = 0, size_t end = 0) {
  encoding.ids.push_back(id);
  encoding.token_types.push_back(type);
  encoding.offsets.emplace_back(begin, end);
}

}  // namespace

Encoding Tokenizer::encode(std::string_view text, int64_t max_length) const {
  check(max_length >= 2, "Tokenizer", "max_length must hold [CLS] and [SEP], got {}", max_length);
  std::vector<Token> tokens = tokenize(text);
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(max_length - 2)));
  Encoding encoding;
  append_token(encoding, vocabulary_.cls, 0);
  for (const Token& t : tokens) append_token(encoding, t.id, 0, t.begin, t.end);
  append_token(encoding, vocabulary_.sep, 0);
  return encoding;
}

Encoding Tokenizer::encode_pair(std::string_view first, std::string_view second, int64_t max_length,
                                Truncation truncation) const {
  check(max_length >= 3, "Tokenizer", "max_length must hold [CLS] and two [SEP], got {}",
        max_length);
  std::vector<Token> a = tokenize(first), b = tokenize(second);
  truncate_pair(a, b, static_cast<size_t>(max_length - 3), truncation);
  Encoding encoding;
  append_token(encoding, vocabulary_.cls, 0);
  for (const Token& t : a) append_token(encoding, t.id, 0, t.begin, t.end);
  append_token(encoding, vocabulary_.sep, 0);
  for (const Token& t : b) append_token(encoding, t.id, 1, t.begin, t.end);
  append_token(encoding, vocabulary_.sep, 1);
  return encoding;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  for (const int32_t id : ids) {
    const std::string& token = vocabulary_.token(id);
    if (skip_special && vocabulary_.is_special(id)) continue;
    if (vocabulary_.continues(id)) {
      text += token.substr(2);
    } else {
      text += text.empty() ? token : ' ' + token;
    }
  }
  return text;
}

}  // namespace rw
