#include <cstring>

#include "core/base/dtype.h"
#include "core/blocks/block_type.h"
#include "core/blocks/ggml_encoders.h"

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

void decode_q4_0(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  for_each_nibble(block + 2, 0, [&](int j, int q) { values[j] = d * float(q - 8); });
}

void decode_q4_1(const std::byte* block, float* values) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  for_each_nibble(block + 4, 0, [&](int j, int q) { values[j] = d * float(q) + m; });
}

void decode_q5_0(const std::byte* block, float* values) {
  const float d = half_at(block, 0);
  for_each_nibble(block + 6, word_at(block, 2),
                  [&](int j, int q) { values[j] = d * float(q - 16); });
}

void decode_q5_1(const std::byte* block, float* values) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  for_each_nibble(block + 8, word_at(block, 4),
                  [&](int j, int q) { values[j] = d * float(q) + m; });
}

void decode_q8_0(const std::byte* block, float* values) {
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
void decode_k(const std::byte* block, const std::byte* nibbles, const std::byte* high,
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

void decode_q4_k(const std::byte* block, float* values) {
  decode_k(block, block + 16, nullptr, values);
}

void decode_q5_k(const std::byte* block, float* values) {
  decode_k(block, block + 48, block + 16, values);
}

// Each half of the block has 64 bytes of low nibbles, 32 bytes with two high bits of four elements,
// and 8 scales of 16 elements.
void decode_q6_k(const std::byte* block, float* values) {
  const float d = half_at(block, 208);
  for (int e = 0; e < large_block; ++e) {
    const int half = e / 128, quarter = e / 32 % 4, i = e % 32;
    const int low = byte_at(block, half * 64 + quarter % 2 * 32 + i) >> quarter / 2 * 4 & 15;
    const int high = byte_at(block, 128 + half * 32 + i) >> quarter * 2 & 3;
    const auto scale = static_cast<int8_t>(byte_at(block, 192 + e / 16));
    values[e] = d * float(scale) * float((low | high << 4) - 32);
  }
}

}  // namespace

namespace blocks {

const BlockType q4_0 = {"Q4_0", small_block, 2, 16, false, decode_q4_0, encode_q4_0};
const BlockType q4_1 = {"Q4_1", small_block, 4, 16, false, decode_q4_1, encode_q4_1};
const BlockType q5_0 = {"Q5_0", small_block, 2, 20, false, decode_q5_0, encode_q5_0};
const BlockType q5_1 = {"Q5_1", small_block, 4, 20, false, decode_q5_1, encode_q5_1};
const BlockType q8_0 = {"Q8_0", small_block, 2, 32, false, decode_q8_0, encode_q8_0};
const BlockType q4_k = {"Q4_K", large_block, 16, 128, false, decode_q4_k, encode_q4_k};
const BlockType q5_k = {"Q5_K", large_block, 16, 160, false, decode_q5_k, encode_q5_k};
const BlockType q6_k = {"Q6_K", large_block, 18, 192, false, decode_q6_k, encode_q6_k};

}  // namespace blocks

}  // namespace rw
