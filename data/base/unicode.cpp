#include "data/base/unicode.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>

#include "core/base/error.h"

namespace rw {

namespace {

UChar32 icu(char32_t code) {
  return static_cast<UChar32>(code);
}

bool has_category(char32_t code, uint32_t mask) {
  return (U_GET_GC_MASK(icu(code)) & mask) != 0;
}

// Unicode's condition Final_Sigma: behind a cased letter and not before one; case-ignorable
// characters between do not count.
bool is_final_sigma(const Characters& text, size_t at) {
  const auto ignorable = [&](size_t i) {
    return u_hasBinaryProperty(icu(text[i].code), UCHAR_CASE_IGNORABLE) != 0;
  };
  const auto cased = [&](size_t i) {
    return u_hasBinaryProperty(icu(text[i].code), UCHAR_CASED) != 0;
  };
  size_t before = at, after = at + 1;
  while (before > 0 && ignorable(before - 1)) --before;
  while (after < text.size() && ignorable(after)) ++after;
  return before > 0 && cased(before - 1) && (after == text.size() || !cased(after));
}

const UNormalizer2* nfd() {
  static const UNormalizer2* const instance = [] {
    UErrorCode status = U_ZERO_ERROR;
    const UNormalizer2* found = unorm2_getNFDInstance(&status);
    check<Error>(U_SUCCESS(status), "strip_accents", "ICU must have its normalisation data, got {}",
                 u_errorName(status));
    return found;
  }();
  return instance;
}

void append_decomposition(Characters& out, const Character& c) {
  std::array<UChar, 32> units;  // the longest one has 4 code points
  UErrorCode status = U_ZERO_ERROR;
  const int32_t count =
      c.code < 0x80 ? -1 : unorm2_getDecomposition(nfd(), icu(c.code), units.data(), 32, &status);
  if (count < 0) {
    out.push_back(c);
    return;
  }
  for (int32_t i = 0; i < count;) {
    UChar32 code;
    U16_NEXT(units.data(), i, count, code);
    out.push_back({static_cast<char32_t>(code), c.begin, c.end});
  }
}

}  // namespace

bool next_character(std::string_view text, size_t& position, Character& out) {
  const size_t begin = position;
  int32_t i = static_cast<int32_t>(begin);
  UChar32 code;
  U8_NEXT(text.data(), i, static_cast<int32_t>(text.size()), code);
  position = static_cast<size_t>(i);
  out = {static_cast<char32_t>(code), begin, position};
  return code >= 0;
}

void append_utf8(std::string& text, char32_t code) {
  char bytes[U8_MAX_LENGTH];
  int32_t count = 0;
  U8_APPEND_UNSAFE(bytes, count, icu(code));
  text.append(bytes, static_cast<size_t>(count));
}

bool is_valid_utf8(std::string_view text) {
  Character c;
  for (size_t position = 0; position < text.size();)
    if (!next_character(text, position, c)) return false;
  return true;
}

std::string to_valid_utf8(std::string_view text) {
  std::string result;
  Character c;
  for (size_t position = 0; position < text.size();)
    append_utf8(result, next_character(text, position, c) ? c.code : U'\uFFFD');
  return result;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t done = 0;;) {
    const size_t at = text.find(from, done);
    result += text.substr(done, at - done);
    if (at == text.npos) return result;
    result += to;
    done = at + from.size();
  }
}

size_t incomplete_utf8(std::string_view text) {
  size_t whole = text.size();
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  U8_TRUNCATE_IF_INCOMPLETE(bytes, 0, whole);
  return text.size() - whole;
}

// Python splits at line and paragraph separators too, which BERT's cleaning does not treat as
// spaces.
bool is_space(char32_t code) {
  if (code < 0x80) return code == ' ' || code == '\t' || code == '\n' || code == '\r';
  return has_category(code, U_GC_Z_MASK);
}

bool is_ignored(char32_t code) {
  if (code < 0x80) return (code < 0x20 && !is_space(code)) || code == 0x7F;
  return code == 0xFFFD || has_category(code, U_GC_CC_MASK | U_GC_CF_MASK);
}

bool is_punctuation(char32_t code) {
  if (code < 0x80)
    return (code >= 33 && code <= 47) || (code >= 58 && code <= 64) || (code >= 91 && code <= 96) ||
           (code >= 123 && code <= 126);
  return has_category(code, U_GC_P_MASK);
}

bool is_cjk(char32_t code) {
  const auto within = [code](char32_t first, char32_t last) {
    return code >= first && code <= last;
  };
  return within(0x4E00, 0x9FFF) || within(0x3400, 0x4DBF) || within(0x20000, 0x2A6DF) ||
         within(0x2A700, 0x2B73F) || within(0x2B740, 0x2B81F) || within(0x2B820, 0x2CEAF) ||
         within(0xF900, 0xFAFF) || within(0x2F800, 0x2FA1F);
}

// Only U+0130 and the final sigma differ from the mapping of single characters.
Characters lower_case(const Characters& text) {
  Characters out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto [code, begin, end] = text[i];
    if (code < 0x80) {
      out.push_back({code >= 'A' && code <= 'Z' ? code + 32 : code, begin, end});
    } else if (code == 0x130) {
      out.push_back({U'i', begin, end});
      out.push_back({0x307, begin, end});
    } else if (code == 0x3A3 && is_final_sigma(text, i)) {
      out.push_back({0x3C2, begin, end});
    } else {
      out.push_back({static_cast<char32_t>(u_tolower(icu(code))), begin, end});
    }
  }
  return out;
}

Characters strip_accents(const Characters& text) {
  Characters out;
  out.reserve(text.size());
  for (const Character& c : text) append_decomposition(out, c);

  // Canonical order: each run of marks is sorted by combining class.
  const auto order = [](const Character& c) {
    return c.code < 0x80 ? 0 : int{u_getCombiningClass(icu(c.code))};
  };
  for (auto run = out.begin(); run != out.end();) {
    const auto end = std::find_if(run, out.end(), [&](const Character& c) { return !order(c); });
    std::ranges::stable_sort(run, end, {}, order);
    run = end == out.end() ? end : end + 1;
  }
  std::erase_if(
      out, [](const Character& c) { return c.code >= 0x80 && has_category(c.code, U_GC_MN_MASK); });
  return out;
}

}  // namespace rw
