#include "data/base/text_normalizer.h"

#include <unicode/brkiter.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "data/base/icu.h"
#include "data/base/unicode.h"

namespace rw {

namespace {

size_t offset(uint32_t unit) {
  return size_t{unit >> 10} << ((unit & 1U << 9) >> 6);
}

std::string made_valid(std::string text) {
  return is_valid_utf8(text) ? std::move(text) : to_valid_utf8(text);
}

// A table as sentencepiece's src/normalizer.cc has it: the bytes of a trie, the trie (a double
// array, as darts-clone writes it), and texts that end in zeros.
class CharacterMap {
 public:
  // FileError for bytes that are no table.
  explicit CharacterMap(const std::string& bytes);

  // As the library tokenizers applies it (its spm_precompiled): to graphemes of up to 5 bytes as a
  // whole, else to each character, and of several matches the shortest counts.
  std::string map_graphemes(std::string_view text) const;
  // As SentencePiece and llama.cpp apply it: the longest match at each place counts.
  std::string map_longest(std::string_view text) const;

 private:
  template <class Visit>
  void each_beginning(std::string_view text, const Visit& visit) const;
  bool append_shortest(std::string& result, std::string_view key) const;
  void append_grapheme(std::string& result, std::string_view grapheme) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

CharacterMap::CharacterMap(const std::string& bytes) {
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
    return value;
  };
  const size_t trie = bytes.size() < 4 ? 0 : word(0);
  check<FileError>(trie > 0 && trie % 4 == 0 && trie <= bytes.size() - 4, "BpeTokenizer",
                   "a precompiled_charsmap must have a trie and texts, got {} bytes of which {} "
                   "are the trie",
                   bytes.size(), trie);
  for (size_t at = 4; at < 4 + trie; at += 4) units_.push_back(word(at));
  texts_ = bytes.substr(4 + trie);
}

// Calls visit(bytes, replacement) for each beginning of a text that the trie has, the shortest
// first, until it returns false.
template <class Visit>
void CharacterMap::each_beginning(std::string_view text, const Visit& visit) const {
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto label = static_cast<uint8_t>(text[i]);
    node ^= label;
    if (label == 0 || node >= units_.size()) return;
    const uint32_t unit = units_[node];
    if ((unit & (1U << 31 | 0xFF)) != label) return;
    node ^= offset(unit);
    if (node >= units_.size()) return;
    if ((unit >> 8 & 1) == 0) continue;
    const size_t at = units_[node] & ~(1U << 31);
    if (at >= texts_.size()) return;
    if (!visit(i + 1, std::string_view(texts_).substr(at, texts_.find('\0', at) - at))) return;
  }
}

// The shortest beginning that the trie has counts for the whole.
bool CharacterMap::append_shortest(std::string& result, std::string_view key) const {
  bool is_found = false;
  each_beginning(key, [&](size_t, std::string_view replacement) {
    result += replacement;
    is_found = true;
    return false;
  });
  return is_found;
}

void CharacterMap::append_grapheme(std::string& result, std::string_view grapheme) const {
  constexpr size_t longest = 5;
  if (grapheme.size() <= longest && append_shortest(result, grapheme)) return;
  Character c;
  for (size_t at = 0; at < grapheme.size();) {
    next_character(grapheme, at, c);
    const std::string_view part = grapheme.substr(c.begin, c.end - c.begin);
    if (!append_shortest(result, part)) result += part;
  }
}

std::string CharacterMap::map_graphemes(std::string_view text) const {
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
    append_grapheme(result,
                    text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  utext_close(&source);
  check_icu(status);
  return made_valid(std::move(result));
}

std::string CharacterMap::map_longest(std::string_view text) const {
  std::string result;
  Character c;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    std::string_view replacement;
    each_beginning(text.substr(at), [&](size_t bytes, std::string_view found) {
      length = bytes;
      replacement = found;
      return true;
    });
    if (length == 0) {
      next_character(text, at, c);
      result += text.substr(c.begin, c.end - c.begin);
    } else {
      result += replacement;
      at += length;
    }
  }
  return made_valid(std::move(result));
}

// Runs once for each text.
using StepFunction = std::function<std::string(std::string_view)>;

icu::StringPiece piece(std::string_view text) {
  return {text.data(), static_cast<int32_t>(text.size())};
}

std::shared_ptr<const icu::UnicodeSet> set_of(const char* pattern) {
  UErrorCode status = U_ZERO_ERROR;
  const auto set = std::make_shared<icu::UnicodeSet>(icu::UnicodeString(pattern), status);
  check_icu(status);
  set->freeze();
  return set;
}

StepFunction form_of(Normalization kind) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* newest =
      kind == Normalization::nfc    ? icu::Normalizer2::getNFCInstance(status)
      : kind == Normalization::nfd  ? icu::Normalizer2::getNFDInstance(status)
      : kind == Normalization::nfkc ? icu::Normalizer2::getNFKCInstance(status)
                                    : icu::Normalizer2::getNFKDInstance(status);
  check_icu(status);
  const auto known = set_of("[:age=9.0:]");
  const auto form = std::make_shared<const icu::FilteredNormalizer2>(*newest, *known);
  return [known, form](std::string_view text) {
    if (std::ranges::none_of(text, [](char c) { return c < 0; })) return std::string(text);
    std::string result;
    UErrorCode found = U_ZERO_ERROR;
    icu::StringByteSink<std::string> sink(&result, static_cast<int32_t>(text.size()));
    form->normalizeUTF8(0, piece(text), sink, nullptr, found);
    check_icu(found);
    return result;
  };
}

// A step that does append(result, character) for each.
template <class Append>
StepFunction each_character(const Append& append) {
  return [append](std::string_view text) {
    std::string result;
    Character c;
    for (size_t at = 0; at < text.size();)
      if (next_character(text, at, c)) append(result, c.code);
    return result;
  };
}

void append_lower(std::string& text, char32_t code) {
  append_utf8(text, code == 0x130 ? 'i' : char32_t(u_tolower(static_cast<UChar32>(code))));
  if (code == 0x130) append_utf8(text, 0x307);
}

// The rules of the library's Nmt, which are those of SentencePiece's table nmt_nfkc.
void append_nmt(std::string& text, char32_t code) {
  const auto within = [code](char32_t first, char32_t last) {
    return code >= first && code <= last;
  };
  if (within(0x01, 0x08) || code == 0x0B || within(0x0E, 0x1F) || code == 0x7F || code == 0x8F ||
      code == 0x9F)
    return;
  const bool is_blank = code == 0x09 || code == 0x0A || code == 0x0C || code == 0x0D ||
                        code == 0x1680 || within(0x200B, 0x200F) || within(0x2028, 0x2029) ||
                        code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
  append_utf8(text, is_blank ? U' ' : code);
}

// The library's is_chinese_char, which leaves out U+2B820 to U+2B91F.
constexpr const char* ideographs =
    "[\\u3400-\\u4DBF\\u4E00-\\u9FFF\\uF900-\\uFAFF\\U00020000-\\U0002A6DF"
    "\\U0002A700-\\U0002B81F\\U0002B920-\\U0002CEAF\\U0002F800-\\U0002FA1F]";

StepFunction bert_step(Normalization kind) {
  if (kind == Normalization::bert_ideographs)
    return each_character([known = set_of(ideographs)](std::string& text, char32_t code) {
      const bool is_known = known->contains(static_cast<UChar32>(code));
      if (is_known) text += ' ';
      append_utf8(text, code);
      if (is_known) text += ' ';
    });
  // Some characters have become marks, and one is a mark no longer.
  const bool cleans = kind == Normalization::bert_clean;
  const auto removed =
      set_of(cleans ? "[[[:Cc:][:Co:][[:Cf:]&[:age=8.0:]]\\uFFFD]-[\\t\\n\\r]]"
                    : "[[[:Mn:]&[:age=8.0:]][\\u1734]-[\\u1885\\u1886\\uA9BD\\U000111C9]]");
  const StepFunction filter = each_character([removed, cleans](std::string& text, char32_t code) {
    const auto c = static_cast<UChar32>(code);
    if (!removed->contains(c)) append_utf8(text, cleans && u_isUWhiteSpace(c) ? U' ' : code);
  });
  if (cleans) return filter;
  return [filter, form = form_of(Normalization::nfd)](std::string_view text) {
    return filter(form(text));
  };
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

// As in the library, an empty match counts only where no other one ends, and nothing matches in an
// empty text.
StepFunction replacer(const NormalizerStep& step) {
  if (step.literal && !step.pattern.empty())
    return [step](std::string_view text) { return replace_all(text, step.pattern, step.content); };
  UErrorCode status = U_ZERO_ERROR;
  UParseError where;
  const std::shared_ptr<icu::RegexPattern> pattern(icu::RegexPattern::compile(
      icu::UnicodeString::fromUTF8(step.pattern), regex_flags, where, status));
  check<FileError>(U_SUCCESS(status), "BpeTokenizer",
                   "a normalizer must replace a regular expression that ICU knows, got {:?}: {}",
                   step.pattern, u_errorName(status));
  return [pattern, to = icu::UnicodeString::fromUTF8(step.content)](std::string_view text) {
    if (text.empty()) return std::string();
    UErrorCode result = U_ZERO_ERROR;
    const icu::UnicodeString from = icu::UnicodeString::fromUTF8(piece(text));
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern->matcher(from, result));
    check_icu(result);
    icu::UnicodeString replaced;
    int32_t done = 0;
    for (int32_t last = -1; matcher->find(result);) {
      const int32_t begin = matcher->start(result), end = matcher->end(result);
      if (begin == end && begin == last) continue;
      replaced.append(from, done, begin - done).append(to);
      done = last = end;
    }
    check_icu(result);
    std::string bytes;
    return replaced.append(from, done, from.length() - done).toUTF8String(bytes);
  };
}

StepFunction function_of(const NormalizerStep& step) {
  switch (step.kind) {
    case Normalization::nfc:
    case Normalization::nfd:
    case Normalization::nfkc:
    case Normalization::nfkd:
      return form_of(step.kind);
    case Normalization::lowercase:
      return each_character(append_lower);
    case Normalization::strip_accents:
      // Two characters were marks in Unicode 9 only, and one has become a mark.
      return each_character([marks = set_of("[[[:M:]&[:age=9.0:]]-[\\U000111C9]\\u1CF2\\u1CF3]")](
                                std::string& text, char32_t code) {
        if (!marks->contains(static_cast<UChar32>(code))) append_utf8(text, code);
      });
    case Normalization::nmt:
      return each_character(append_nmt);
    case Normalization::replace:
      return replacer(step);
    case Normalization::prepend:
      return [step](std::string_view text) {
        return text.empty() ? std::string() : step.content + std::string(text);
      };
    case Normalization::bert_clean:
    case Normalization::bert_ideographs:
    case Normalization::bert_accents:
      return bert_step(step.kind);
    case Normalization::strip:
      return [step](std::string_view text) { return stripped(text, step); };
    case Normalization::charsmap:
    case Normalization::charsmap_longest:
      break;
  }
  const auto map = std::make_shared<const CharacterMap>(step.pattern);
  const bool is_longest = step.kind == Normalization::charsmap_longest;
  return [map, is_longest](std::string_view text) {
    return is_longest ? map->map_longest(text) : map->map_graphemes(text);
  };
}

}  // namespace

TextNormalizer::TextNormalizer(const std::vector<NormalizerStep>& steps) {
  for (const NormalizerStep& step : steps) steps_.push_back(function_of(step));
}

std::string TextNormalizer::normalised(std::string_view text) const {
  std::string result(text);
  for (const auto& step : steps_) result = step(result);
  return result;
}

}  // namespace rw
