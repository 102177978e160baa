// The element types of GGUF files.
#pragma once

#include <cstdint>
#include <string_view>

#include "../../core/blocks/block_type.h"

namespace rw {

// The types that are read and written, with the format's numbers.
enum class GgufType : uint32_t {
  f32 = 0,    // as DType's
  f16 = 1,    // the same
  q4_0 = 2,   // blocks::q4_0
  q4_1 = 3,   // blocks::q4_1
  q5_0 = 6,   // blocks::q5_0
  q5_1 = 7,   // blocks::q5_1
  q8_0 = 8,   // blocks::q8_0
  q4_k = 12,  // blocks::q4_k
  q5_k = 13,  // blocks::q5_k
  q6_k = 14,  // blocks::q6_k
  bf16 = 30,  // as DType's
};

// A type that files may name, also one that is not read.
struct GgufTypeInfo {
  GgufTypeInfo(uint32_t n, const BlockType& type)
      : GgufTypeInfo(n, type.name, type.elements, type.bytes(), &type) {}
  GgufTypeInfo(uint32_t n, std::string_view its_name, uint32_t elements, uint32_t bytes,
               const BlockType* type = nullptr)
      : number(n), name(its_name), block_elements(elements), block_bytes(bytes), blocks(type) {}

  uint32_t number;          // as GgufType
  std::string_view name;    // as ggml spells it: "Q4_K"
  uint32_t block_elements;  // 1: not quantised
  uint32_t block_bytes;     // that these take in a file
  const BlockType* blocks;  // null for types that are not quantised or not read

  // The bytes of n elements, which are whole blocks.
  uint64_t bytes_of(uint64_t n) const { return n / block_elements * block_bytes; }
};

// Null for a number or a name that the format does not have. Names are found in any case.
const GgufTypeInfo* find_gguf_type(uint32_t number);
const GgufTypeInfo* find_gguf_type(std::string_view name);
inline const GgufTypeInfo& gguf_type_info(GgufType type) {
  return *find_gguf_type(static_cast<uint32_t>(type));
}

}  // namespace rw
