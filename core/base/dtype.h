// Element types. f16 and bf16 are storage only: arithmetic and accumulation are f32 everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rw {

// f32 and f16 (IEEE binary32 and binary16), bf16 (bfloat16, the upper half of an f32: its range
// with 8 bits of precision), i32 (two's complement), u8 (also bool: 0 or 1).
enum class DType : uint8_t { f32, f16, bf16, i32, u8 };

// Returns the size of an element in bytes.
constexpr size_t size_of(DType t) {
  return t == DType::f32 || t == DType::i32 ? 4 : t == DType::f16 || t == DType::bf16 ? 2 : 1;
}
// Tells whether it is f16 or bf16.
constexpr bool is_half(DType t) {
  return t == DType::f16 || t == DType::bf16;
}
// Tells whether it is f32, f16 or bf16. Only floats have gradients.
constexpr bool is_float(DType t) {
  return t == DType::f32 || is_half(t);
}

std::string_view name(DType t);         // "f32"
DType parse_dtype(std::string_view s);  // accepts "f32", "float32", "fp16", ...; throws ValueError

// IEEE binary16, round to nearest even, denormals kept.
uint16_t to_half(float x);
float from_half(uint16_t bits);
// bfloat16, round to nearest even, denormals kept; NaN stays NaN.
uint16_t to_brain(float x);
float from_brain(uint16_t bits);
// The same for the given type, f16 or bf16.
inline uint16_t to_16_bits(DType t, float x) {
  return t == DType::bf16 ? to_brain(x) : to_half(x);
}
inline float from_16_bits(DType t, uint16_t bits) {
  return t == DType::bf16 ? from_brain(bits) : from_half(bits);
}

}  // namespace rw
