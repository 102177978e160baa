// Element types. f16 is storage only: arithmetic and accumulation are f32 everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rw {

enum class DType : uint8_t { f32, f16, i32, u8 };  // u8 is also bool: 0 or 1

constexpr size_t size_of(DType t) {
  return t == DType::f32 || t == DType::i32 ? 4 : t == DType::f16 ? 2 : 1;
}
constexpr bool is_float(DType t) {
  return t == DType::f32 || t == DType::f16;
}

std::string_view name(DType t);         // "f32"
DType parse_dtype(std::string_view s);  // accepts "f32", "float32", "fp16", ...; throws ValueError

// IEEE binary16, round to nearest even, denormals kept.
uint16_t to_half(float x);
float from_half(uint16_t bits);

}  // namespace rw
