#include "data/base/base64.h"

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"

namespace rw {

namespace {

constexpr std::string_view base64_digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i)
      group = group << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0);
    for (size_t i = 0; i < 4; ++i)
      text += at + i <= bytes.size() ? base64_digits[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::string from_base64(std::string_view text) {
  std::string bytes;
  const size_t end = std::min(text.find('='), text.size());
  uint32_t group = 0;
  for (size_t at = 0; at < end; ++at) {
    const size_t digit = base64_digits.find(text[at]);
    check<FileError>(digit != std::string_view::npos, "base64",
                     "a text must have the 64 characters of base64, got byte {} at {}",
                     static_cast<uint8_t>(text[at]), at);
    group = group << 6 | static_cast<uint32_t>(digit);
    const size_t bits = 6 * (at + 1) % 8;  // that no byte has yet
    if (bits < 6) bytes += static_cast<char>(group >> bits & 255);
  }
  check<FileError>(text.size() % 4 == 0 && text.size() - end <= 2, "base64",
                   "a text must have groups of four characters, got {}", text.size());
  return bytes;
}

}  // namespace rw
