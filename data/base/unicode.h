// Unicode as BERT's tokenizer sees it; ICU knows the characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// A code point (`code`) and the bytes [begin, end) of the source text it comes from.
struct Character {
  char32_t code;
  size_t begin, end;
};
using Characters = std::vector<Character>;

// Reads the code point at `position` and moves past it. False for bytes that are not UTF-8, which
// are skipped. Texts have at most 2 GiB.
bool next_character(std::string_view text, size_t& position, Character& out);
// Appends the code point's bytes.
void append_utf8(std::string& text, char32_t code);
// Whether all of it is UTF-8.
bool is_valid_utf8(std::string_view text);
// The text with U+FFFD for what is not UTF-8: one for each longest part that could begin a
// character, as Python's errors='replace' and the WHATWG do it.
std::string to_valid_utf8(std::string_view text);
// The text with `to` in place of each `from`, which is not empty.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);
// How many bytes at the end begin a character that more bytes could complete; at most 3.
size_t incomplete_utf8(std::string_view text);

bool is_space(char32_t code);    // separates words
bool is_ignored(char32_t code);  // control and format characters, U+0000, U+FFFD
bool is_punctuation(
    char32_t code);          // Unicode's, and every ASCII character that is no letter or digit
bool is_cjk(char32_t code);  // an ideograph: a word of its own

// Full Unicode lower-casing with no locale; a final capital sigma becomes U+03C2.
Characters lower_case(const Characters& text);
// Canonical decomposition without the nonspacing marks.
Characters strip_accents(const Characters& text);

}  // namespace rw
