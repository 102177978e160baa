#include "io/formats/gguf_blocks.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "core/base/dtype.h"

namespace rw {

namespace {

constexpr int small_block = 32, large_block = 256;  // elements

uint8_t byte_at(const std::byte* block, int at) {
  return std::to_integer<uint8_t>(block[at]);
}

float half_at(const std::byte* block, int at) {
  uint16_t bits;
  std::memcpy(&bits, block + at, sizeof bits);
  return from_half(bits);
}

uint32_t word_at(const std::byte* block, int at) {
  uint32_t word;
  std::memcpy(&word, block + at, sizeof word);
  return word;
}

// A byte of `nibbles` holds element j in its low half and element j + 16 in its high half; bit j of
// `fifth` is the fifth bit of element j. Calls give(j, q) for each of the 32 elements.
template <class Give>
void for_each_nibble(const std::byte* nibbles, uint32_t fifth, const Give& give) {
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(nibbles, j);
    give(j, (q & 15) | static_cast<int>(fifth >> j & 1) << 4);
    give(j + 16, q >> 4 | static_cast<int>(fifth >> (j + 16) & 1) << 4);
  }
}

// Products of a scale and an integer are exact below, so the order of operations does not matter.

void dequantise_q4_0(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  for_each_nibble(block + 2, 0, [&](int j, int q) { values[j] = d * float(q - 8); });
}

void dequantise_q4_1(const std::byte* block, float* values) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  for_each_nibble(block + 4, 0, [&](int j, int q) { values[j] = d * float(q) + m; });
}

void dequantise_q5_0(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  for_each_nibble(block + 6, word_at(block, 2),
                  [&](int j, int q) { values[j] = d * float(q - 16); });
}

void dequantise_q5_1(const std::byte* block, float* values) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  for_each_nibble(block + 8, word_at(block, 4),
                  [&](int j, int q) { values[j] = d * float(q) + m; });
}

void dequantise_q8_0(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  for (int j = 0; j < small_block; ++j)
    values[j] = d * float(static_cast<int8_t>(byte_at(block, 2 + j)));
}

// The scale and the minimum of sub-block j, of 6 bits each; the 8 sub-blocks share 12 bytes.
std::pair<int, int> scale_and_min(const std::byte* s, int j) {
  if (j < 4) return {byte_at(s, j) & 63, byte_at(s, j + 4) & 63};
  return {(byte_at(s, j + 4) & 15) | byte_at(s, j - 4) >> 6 << 4,
          byte_at(s, j + 4) >> 4 | byte_at(s, j) >> 6 << 4};
}

// Q4_K and, with the fifth bits in `high`, Q5_K: a byte of `nibbles` holds elements of two
// neighbouring sub-blocks of 32, and bit j of a byte of `high` belongs to sub-block j.
void dequantise_k(const std::byte* block, const std::byte* nibbles, const std::byte* high,
                  float* values) {
  const float d = half_at(block, 0), d_min = half_at(block, 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, minimum] = scale_and_min(block + 4, j);
    const float step = d * float(scale), low = d_min * float(minimum);
    for (int i = 0; i < 32; ++i) {
      const int nibble = byte_at(nibbles, j / 2 * 32 + i) >> j % 2 * 4 & 15;
      const int fifth = high ? byte_at(high, i) >> j & 1 : 0;
      values[j * 32 + i] = step * float(nibble | fifth << 4) - low;
    }
  }
}

void dequantise_q4_k(const std::byte* block, float* values) {
  dequantise_k(block, block + 16, nullptr, values);
}

void dequantise_q5_k(const std::byte* block, float* values) {
  dequantise_k(block, block + 48, block + 16, values);
}

// Each half of the block has 64 bytes of low nibbles, 32 bytes with two high bits of four elements,
// and 8 scales of 16 elements.
void dequantise_q6_k(const std::byte* block, float* values) {
  const float d = half_at(block, 208);
  for (int e = 0; e < large_block; ++e) {
    const int half = e / 128, quarter = e / 32 % 4, i = e % 32;
    const int low = byte_at(block, half * 64 + quarter % 2 * 32 + i) >> quarter / 2 * 4 & 15;
    const int high = byte_at(block, 128 + half * 32 + i) >> quarter * 2 & 3;
    const auto scale = static_cast<int8_t>(byte_at(block, 192 + e / 16));
    values[e] = d * float(scale) * float((low | high << 4) - 32);
  }
}

constexpr GgufTypeInfo types[] = {
    {0, "F32", 1, 4, nullptr},
    {1, "F16", 1, 2, nullptr},
    {2, "Q4_0", 32, 18, dequantise_q4_0},
    {3, "Q4_1", 32, 20, dequantise_q4_1},
    {6, "Q5_0", 32, 22, dequantise_q5_0},
    {7, "Q5_1", 32, 24, dequantise_q5_1},
    {8, "Q8_0", 32, 34, dequantise_q8_0},
    {9, "Q8_1", 32, 36, nullptr},
    {10, "Q2_K", 256, 84, nullptr},
    {11, "Q3_K", 256, 110, nullptr},
    {12, "Q4_K", 256, 144, dequantise_q4_k},
    {13, "Q5_K", 256, 176, dequantise_q5_k},
    {14, "Q6_K", 256, 210, dequantise_q6_k},
    {15, "Q8_K", 256, 292, nullptr},
    {16, "IQ2_XXS", 256, 66, nullptr},
    {17, "IQ2_XS", 256, 74, nullptr},
    {18, "IQ3_XXS", 256, 98, nullptr},
    {19, "IQ1_S", 256, 50, nullptr},
    {20, "IQ4_NL", 32, 18, nullptr},
    {21, "IQ3_S", 256, 110, nullptr},
    {22, "IQ2_S", 256, 82, nullptr},
    {23, "IQ4_XS", 256, 136, nullptr},
    {24, "I8", 1, 1, nullptr},
    {25, "I16", 1, 2, nullptr},
    {26, "I32", 1, 4, nullptr},
    {27, "I64", 1, 8, nullptr},
    {28, "F64", 1, 8, nullptr},
    {29, "IQ1_M", 256, 56, nullptr},
    {30, "BF16", 1, 2, nullptr},
    {34, "TQ1_0", 256, 54, nullptr},
    {35, "TQ2_0", 256, 66, nullptr},
    {39, "MXFP4", 32, 17, nullptr},
    {40, "NVFP4", 64, 36, nullptr},
    {41, "Q1_0", 128, 18, nullptr},
    {42, "Q2_0", 64, 18, nullptr},
};

const GgufTypeInfo* found(auto&& matches) {
  const auto* type = std::find_if(std::begin(types), std::end(types), matches);
  return type == std::end(types) ? nullptr : type;
}

}  // namespace

const GgufTypeInfo* find_gguf_type(uint32_t number) {
  return found([&](const GgufTypeInfo& type) { return type.number == number; });
}

const GgufTypeInfo* find_gguf_type(std::string_view name) {
  return found([&](const GgufTypeInfo& type) {
    return std::ranges::equal(type.name, name, {}, {},
                              [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  });
}

bool quantise_q8_0(std::span<const float> values, std::byte* blocks) {
  for (; values.size() >= small_block; values = values.subspan(small_block)) {
    float largest = 0;
    for (int j = 0; j < small_block; ++j) {
      if (!std::isfinite(values[j])) return false;
      largest = std::max(largest, std::abs(values[j]));
    }
    const float d = largest / 127, inverse = d == 0 ? 0 : 1 / d;
    const uint16_t scale = to_half(d);
    if (!std::isfinite(from_half(scale))) return false;
    std::memcpy(blocks, &scale, sizeof scale);
    blocks += sizeof scale;
    for (int j = 0; j < small_block; ++j)
      *blocks++ = static_cast<std::byte>(static_cast<int8_t>(std::round(values[j] * inverse)));
  }
  return true;
}

}  // namespace rw
