// Conversion of single 16-bit floats and integers from f32 and back, without branches. The bits are
// those of core/base/dtype.h and checked.h.
#pragma once

#include "level.h"

namespace rw::cpu::REWIND_LEVEL {

inline uint32_t bits_of(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
inline float float_of(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

inline float from_half(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  // Right for denormals, too.
  const uint32_t finite = bits_of(float_of(magnitude << 13) * 0x1p112f);
  const uint32_t other = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  return float_of(sign | (magnitude >= 0x7c00u ? other : finite));
}

inline uint16_t to_half(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  const uint32_t denormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t half = magnitude < 0x38800000u ? denormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // values that round to infinity
  half = magnitude > 0x7f800000u ? 0x7e00u : half;   // NaN
  return static_cast<uint16_t>((bits >> 16 & 0x8000u) | half);
}

inline float from_brain(uint16_t brain) {
  return float_of(static_cast<uint32_t>(brain) << 16);
}

inline uint16_t to_brain(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? bits >> 16 | 0x40u : rounded);
}

// Elements of 16 bits, and a register of them as f32.
template <float (*as_float)(uint16_t)>
struct Element16 {
  uint16_t bits;
  operator float() const { return as_float(bits); }
};
using Half = Element16<from_half>;
using Brain = Element16<from_brain>;
inline Vec load(const Half* from) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  Vec y;
  for (int64_t i = 0; i < lanes; ++i) y[i] = from[i];
  return y;
#endif
}
inline Vec load(const Brain* from) {
  Vec y;
  for (int64_t i = 0; i < lanes; ++i) y[i] = from[i];
  return y;
}

// Rounds toward zero, to the nearest i32 at the ends of its range; NaN gives 0.
inline int32_t to_int(float x) {
  const bool is_high = x >= 2147483648.0f, is_low = x < -2147483648.0f;
  const float inside = is_high || is_low || x != x ? 0.0f : x;
  const int32_t whole = static_cast<int32_t>(inside);
  return is_high ? INT32_MAX : is_low ? INT32_MIN : whole;
}

}  // namespace rw::cpu::REWIND_LEVEL
