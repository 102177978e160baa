#include "data/base/byte_alphabet.h"

#include "data/base/unicode.h"

namespace rw {

namespace {

// Bytes that are printable in Latin-1 stand for themselves; the others follow from U+0100 on.
constexpr bool is_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> characters = [] {
  std::array<char32_t, 256> result{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    result[static_cast<size_t>(byte)] = is_itself(byte) ? static_cast<char32_t>(byte) : next++;
  return result;
}();

constexpr std::array<int16_t, 0x144> bytes_of = [] {
  std::array<int16_t, 0x144> result{};
  result.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) result[characters[byte]] = static_cast<int16_t>(byte);
  return result;
}();

}  // namespace

char32_t byte_character(uint8_t byte) {
  return characters[byte];
}

std::string bytes_to_characters(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, characters[static_cast<uint8_t>(byte)]);
  return text;
}

std::optional<std::string> characters_to_bytes(std::string_view text) {
  std::string bytes;
  Character c;
  for (size_t position = 0; position < text.size();) {
    if (!next_character(text, position, c) || c.code >= bytes_of.size() || bytes_of[c.code] < 0)
      return std::nullopt;
    bytes += static_cast<char>(bytes_of[c.code]);
  }
  return bytes;
}

}  // namespace rw
