// GPT-2's alphabet: a printable character for each byte, so that tokens of any bytes are texts
// (bytes_to_unicode in openai/gpt-2's encoder.py).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rw {

// The character of a byte, at most U+0143.
char32_t byte_character(uint8_t byte);
// The characters of some bytes as UTF-8.
std::string bytes_to_characters(std::string_view bytes);
// The bytes of a text in the alphabet, or nothing if it has other characters.
std::optional<std::string> characters_to_bytes(std::string_view text);

}  // namespace rw
