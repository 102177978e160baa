// The element types of GGUF files. Most are quantised: a block of neighbours in a row shares scales
// (ggml-common.h and ggml-quants.c of https://github.com/ggml-org/ggml).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rw {

// The types that are read, with the format's numbers; write_gguf() takes f32, f16, bf16 and q8_0.
// Blocks of 32 values have a scale of 16 bits and codes of 4 (q4_0, q4_1), 5 (q5_0, q5_1) or 8 bits
// (q8_0), those that end with 1 also a minimum. Blocks of 256 have further scales of sub-blocks,
// and codes of 4 (q4_k), 5 (q5_k) or 6 bits (q6_k).
enum class GgufType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};

// A type that files may name, also one that is not read.
struct GgufTypeInfo {
  uint32_t number;          // as GgufType
  std::string_view name;    // as ggml spells it: "Q4_K"
  uint32_t block_elements;  // 1: not quantised
  uint32_t block_bytes;     // that these take in a file
  // Writes the f32 values of one block; null for types that are not quantised or not read.
  void (*dequantise)(const std::byte* block, float* values);
};

// Null for a number or a name that the format does not have. Names are found in any case.
const GgufTypeInfo* find_gguf_type(uint32_t number);
const GgufTypeInfo* find_gguf_type(std::string_view name);
inline const GgufTypeInfo& gguf_type_info(GgufType type) {
  return *find_gguf_type(static_cast<uint32_t>(type));
}

// Rounds whole blocks of 32 values to Q8_0, 34 bytes each, with the bits of quantize_row_q8_0_ref()
// of ggml. False if a block has a value that is infinite or NaN, or whose scale f16 does not hold.
bool quantise_q8_0(std::span<const float> values, std::byte* blocks);

}  // namespace rw
