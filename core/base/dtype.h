// Element types. f16 is storage only: arithmetic and accumulation are f32 everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rw {

// f32 and f16 (IEEE binary32 and binary16), i32 (two's complement), u8 (also bool: 0 or 1).
enum class DType : uint8_t { f32, f16, i32, u8 };

// Bytes of an element.
constexpr size_t size_of(DType t) {
  return t == DType::f32 || t == DType::i32 ? 4 : t == DType::f16 ? 2 : 1;
}
// Whether it is f32 or f16. Only floats have gradients.
constexpr bool is_float(DType t) {
  return t == DType::f32 || t == DType::f16;
}

std::string_view name(DType t);         // "f32"
DType parse_dtype(std::string_view s);  // accepts "f32", "float32", "fp16", ...; throws ValueError

// IEEE binary16, round to nearest even, denormals kept.
uint16_t to_half(float x);
float from_half(uint16_t bits);

}  // namespace rw
