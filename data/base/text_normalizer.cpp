#include "data/base/text_normalizer.h"

#include <unicode/brkiter.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <memory>

#include "core/base/error.h"
#include "data/base/unicode.h"

namespace rw {

namespace {

constexpr const char* normalizer_op = "BpeTokenizer";

void check_icu(UErrorCode status) {
  check<Error>(U_SUCCESS(status), normalizer_op, "ICU must be able to normalise the text, got {}",
               u_errorName(status));
}

icu::StringPiece piece(std::string_view text) {
  return {text.data(), static_cast<int32_t>(text.size())};
}

const icu::Normalizer2* form_of(Normalization kind) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* form =
      kind == Normalization::nfc    ? icu::Normalizer2::getNFCInstance(status)
      : kind == Normalization::nfd  ? icu::Normalizer2::getNFDInstance(status)
      : kind == Normalization::nfkc ? icu::Normalizer2::getNFKCInstance(status)
                                    : icu::Normalizer2::getNFKDInstance(status);
  check_icu(status);
  return form;
}

std::string in_form(const icu::Normalizer2& form, std::string_view text) {
  if (std::ranges::none_of(text, [](char c) { return c < 0; })) return std::string(text);
  std::string result;
  UErrorCode status = U_ZERO_ERROR;
  icu::StringByteSink<std::string> sink(&result, static_cast<int32_t>(text.size()));
  form.normalizeUTF8(0, piece(text), sink, nullptr, status);
  check_icu(status);
  return result;
}

std::string stripped(std::string_view text, const NormalizerStep& step) {
  size_t first = text.size(), end = 0;
  Character c;
  for (size_t at = 0; at < text.size();) {
    if (!next_character(text, at, c) || u_isUWhiteSpace(static_cast<UChar32>(c.code))) continue;
    first = std::min(first, c.begin);
    end = c.end;
  }
  if (end == 0) return {};
  if (!step.left) first = 0;
  if (!step.right) end = text.size();
  return std::string(text.substr(first, end - first));
}

std::function<std::string(std::string_view)> replacer(const NormalizerStep& step) {
  UErrorCode status = U_ZERO_ERROR;
  UParseError where;
  const std::shared_ptr<icu::RegexPattern> pattern(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(step.pattern),
                                 step.literal ? UREGEX_LITERAL : 0, where, status));
  check<FileError>(U_SUCCESS(status), normalizer_op,
                   "a normalizer must replace a regular expression that ICU knows, got {:?}: {}",
                   step.pattern, u_errorName(status));
  std::string content;  // in which ICU's signs for groups mean themselves
  for (const char c : step.content) {
    if (c == '$' || c == '\\') content += '\\';
    content += c;
  }
  return [pattern, to = icu::UnicodeString::fromUTF8(content)](std::string_view text) {
    UErrorCode result = U_ZERO_ERROR;
    const icu::UnicodeString from = icu::UnicodeString::fromUTF8(piece(text));
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern->matcher(from, result));
    check_icu(result);
    std::string replaced;
    matcher->replaceAll(to, result).toUTF8String(replaced);
    check_icu(result);
    return replaced;
  };
}

// SentencePiece's table (sentencepiece's src/normalizer.cc): the bytes of a trie, the trie (a
// double array, as darts-clone writes it), and texts that end in zeros. It is applied as the
// library tokenizers does (its spm_precompiled): to graphemes of up to 5 bytes as a whole, else to
// each character, and of several matches the shortest counts.
class CharacterMap {
 public:
  explicit CharacterMap(const std::string& bytes) {
    const auto word = [&](size_t at) {
      uint32_t value = 0;
      for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
      return value;
    };
    const size_t trie = bytes.size() < 4 ? 0 : word(0);
    check<FileError>(trie > 0 && trie % 4 == 0 && trie <= bytes.size() - 4, normalizer_op,
                     "a precompiled_charsmap must have a trie and texts, got {} bytes of which {} "
                     "are the trie",
                     bytes.size(), trie);
    for (size_t at = 4; at < 4 + trie; at += 4) units_.push_back(word(at));
    texts_ = bytes.substr(4 + trie);
  }

  std::string normalised(std::string_view text) const {
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<icu::BreakIterator> graphemes(
        icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
    check_icu(status);
    UText source = UTEXT_INITIALIZER;
    utext_openUTF8(&source, text.data(), static_cast<int64_t>(text.size()), &status);
    graphemes->setText(&source, status);
    std::string result;
    for (int32_t begin = 0, end = graphemes->next(); end != icu::BreakIterator::DONE;
         begin = std::exchange(end, graphemes->next()))
      append(result, text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    utext_close(&source);
    check_icu(status);
    return is_valid_utf8(result) ? result : to_valid_utf8(result);
  }

 private:
  void append(std::string& result, std::string_view grapheme) const {
    constexpr size_t longest = 5;
    if (grapheme.size() <= longest && append_found(result, grapheme)) return;
    Character c;
    for (size_t at = 0; at < grapheme.size();) {
      next_character(grapheme, at, c);
      const std::string_view part = grapheme.substr(c.begin, c.end - c.begin);
      if (!append_found(result, part)) result += part;
    }
  }

  // The shortest beginning that the trie has counts for the whole.
  bool append_found(std::string& result, std::string_view key) const {
    size_t node = offset(units_[0]);
    for (const char byte : key) {
      const auto label = static_cast<uint8_t>(byte);
      node ^= label;
      if (label == 0 || node >= units_.size()) return false;
      const uint32_t unit = units_[node];
      if ((unit & (1U << 31 | 0xFF)) != label) return false;
      node ^= offset(unit);
      if (node >= units_.size()) return false;
      if ((unit >> 8 & 1) == 0) continue;
      const size_t at = units_[node] & ~(1U << 31);
      if (at >= texts_.size()) return false;
      result += std::string_view(texts_).substr(at, texts_.find('\0', at) - at);
      return true;
    }
    return false;
  }
  static size_t offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & 1U << 9) >> 6); }

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace

TextNormalizer::TextNormalizer(const std::vector<NormalizerStep>& steps) {
  for (const NormalizerStep& step : steps) {
    if (step.kind == Normalization::replace) {
      steps_.push_back(replacer(step));
    } else if (step.kind == Normalization::strip) {
      steps_.push_back([step](std::string_view text) { return stripped(text, step); });
    } else if (step.kind == Normalization::charsmap) {
      const auto map = std::make_shared<const CharacterMap>(step.pattern);
      steps_.push_back([map](std::string_view text) { return map->normalised(text); });
    } else {
      const icu::Normalizer2* form = form_of(step.kind);
      steps_.push_back([form](std::string_view text) { return in_form(*form, text); });
    }
  }
}

std::string TextNormalizer::normalised(std::string_view text) const {
  std::string result(text);
  for (const auto& step : steps_) result = step(result);
  return result;
}

}  // namespace rw
