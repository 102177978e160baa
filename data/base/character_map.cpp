#include "data/base/character_map.h"

#include <unicode/brkiter.h>

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

}  // namespace

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

}  // namespace rw
