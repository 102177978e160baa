// The blocks of GGUF files (core/blocks/block_type.h) as codes in registers, with their scales.
#pragma once

#include "halves.h"

namespace rw::cpu::REWIND_LEVEL {

// Codes come as registers of one of two kinds. Compilers make single loads of a
// __builtin_convertvector, so bytes are widened by intrinsics.
struct Ints {
  using Lane = int32_t;
  typedef Lane Register __attribute__((vector_size(lanes * 4)));
  static constexpr int64_t count = lanes;

  REWIND_INLINE static Register bytes(const uint8_t* at) {
#if defined(__AVX512F__)
    return (Register)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
#elif defined(__AVX2__)
    return (Register)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
#else
    Register x;
    for (int64_t i = 0; i < count; ++i) x[i] = at[i];
    return x;
#endif
  }
};
// Whole numbers of 16 bits take half the instructions, in registers of 32 bytes.
#if defined(__AVX2__) && !defined(__AVX512F__)
#define REWIND_SHORTS 1
struct Shorts {
  using Lane = int16_t;
  typedef Lane Register __attribute__((vector_size(32)));
  static constexpr int64_t count = 16;

  REWIND_INLINE static Register bytes(const uint8_t* at) {
    return (Register)_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
};
#endif

REWIND_INLINE Vec floats(Ints::Register x) {
  return __builtin_convertvector(x, Vec);
}

REWIND_INLINE float half(const uint8_t* at) {
  uint16_t bits;
  __builtin_memcpy(&bits, at, sizeof bits);
#if defined(__F16C__)
  return _cvtsh_ss(bits);
#else
  return from_half(bits);
#endif
}
REWIND_INLINE uint32_t word(const uint8_t* at) {
  uint32_t bits;
  __builtin_memcpy(&bits, at, sizeof bits);
  return bits;
}

// Each type calls f(first, step, low, codes) for the groups of its block that share a scale:
// element first + i, for i below `group`, is step * code + low, and codes(i, Kind()) has the codes
// from i on, one in each lane.

// Nibbles of 32 elements in 16 bytes, the first half of them in low nibbles.
template <class Kind>
REWIND_INLINE typename Kind::Register nibbles(const uint8_t* at, int64_t i) {
  const auto both = Kind::bytes(at + i % 16);
  return i < 16 ? both & 15 : both >> 4;
}
// Lane k is 16 where bit i + k of `bits` is set, else 0.
template <class Kind>
REWIND_INLINE typename Kind::Register fifth_bits(uint32_t bits, int64_t i) {
  using Lane = typename Kind::Lane;
  typename Kind::Register mask;
  for (int k = 0; k < Kind::count; ++k) mask[k] = static_cast<Lane>(1u << k);
  const auto all = static_cast<Lane>(bits >> i) - typename Kind::Register{};
  return ((all & mask) == mask) & 16;
}

template <bool has_minimum>
struct Nibbles32 {  // Q4_0, Q4_1
  static constexpr int64_t elements = 32, group = 32, bytes = has_minimum ? 20 : 18;
  static constexpr bool has_low = true;
  template <class F>
  REWIND_INLINE static void each_group(const uint8_t* b, const F& f) {
    const float d = half(b), low = has_minimum ? half(b + 2) : -8 * d;
    f(
        0, d, low, [=]<class Kind>(int64_t i, Kind) __attribute__((always_inline)) {
          return nibbles<Kind>(b + bytes - 16, i);
        });
  }
};

template <bool has_minimum>
struct Fives32 {  // Q5_0, Q5_1
  static constexpr int64_t elements = 32, group = 32, bytes = has_minimum ? 24 : 22;
  static constexpr bool has_low = true;
  template <class F>
  REWIND_INLINE static void each_group(const uint8_t* b, const F& f) {
    const float d = half(b), low = has_minimum ? half(b + 2) : -16 * d;
    const uint32_t fifth = word(b + bytes - 20);
    f(
        0, d, low, [=]<class Kind>(int64_t i, Kind) __attribute__((always_inline)) {
          return nibbles<Kind>(b + bytes - 16, i) | fifth_bits<Kind>(fifth, i);
        });
  }
};

struct Bytes32 {  // Q8_0
  static constexpr int64_t elements = 32, group = 32, bytes = 34;
  static constexpr bool has_low = false;
  template <class F>
  REWIND_INLINE static void each_group(const uint8_t* b, const F& f) {
    f(
        0, half(b), 0, [=]<class Kind>(int64_t i, Kind) __attribute__((always_inline)) {
          return (Kind::bytes(b + 2 + i) ^ 128) - 128;
        });
  }
};

// The steps and the low ends of eight sub-blocks, from 6 bits each in 12 bytes, four at a time.
struct SubBlocks {
  float steps[8], lows[8];

  REWIND_INLINE explicit SubBlocks(const uint8_t* b) {
    const float d = half(b), d_min = -half(b + 2);
    const uint32_t s = word(b + 4), m = word(b + 8), high = word(b + 12);
    set(s & 0x3f3f3f3fu, d, steps);
    set((high & 0x0f0f0f0fu) | (s >> 6 & 0x03030303u) << 4, d, steps + 4);
    set(m & 0x3f3f3f3fu, d_min, lows);
    set((high >> 4 & 0x0f0f0f0fu) | (m >> 6 & 0x03030303u) << 4, d_min, lows + 4);
  }

 private:
  REWIND_INLINE static void set(uint32_t four, float factor, float* to) {
    typedef int32_t Four32 __attribute__((vector_size(16)));
    typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__AVX2__)
    const auto whole = (Four32)_mm_cvtepu8_epi32(_mm_cvtsi32_si128(static_cast<int>(four)));
#else
    Four32 whole;
    for (int i = 0; i < 4; ++i) whole[i] = static_cast<int32_t>(four >> 8 * i & 255);
#endif
    *reinterpret_cast<Four*>(to) = __builtin_convertvector(whole, Four) * factor;
  }
};

template <bool has_fifth>
struct K {  // Q4_K, Q5_K
  static constexpr int64_t elements = 256, group = 32, bytes = has_fifth ? 176 : 144;
  static constexpr bool has_low = true;
  template <class F>
  REWIND_INLINE static void each_group(const uint8_t* b, const F& f) {
    const SubBlocks sub(b);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const uint8_t* const q = b + bytes - 128 + j / 2 * 32;
      f(
          j * 32, sub.steps[j],
          sub.lows[j], [=]<class Kind>(int64_t i, Kind) __attribute__((always_inline)) {
            const auto both = Kind::bytes(q + i), low = j % 2 == 0 ? both & 15 : both >> 4;
            if constexpr (has_fifth) {
              const auto fifth = Kind::bytes(b + 16 + i);
              return low | ((j < 4 ? fifth << (4 - j) : fifth >> (j - 4)) & 16);
            }
            return low;
          });
    }
  }
};

struct Sixes {  // Q6_K
  static constexpr int64_t elements = 256, group = 16, bytes = 210;
  static constexpr bool has_low = true;
  template <class F>
  REWIND_INLINE static void each_group(const uint8_t* b, const F& f) {
    const float d = half(b + 208);
    const auto* const scales = reinterpret_cast<const int8_t*>(b + 192);
#pragma GCC unroll 16
    for (int e = 0; e < 16; ++e) {
      const int part = e / 8, quarter = e / 2 % 4;
      const uint8_t* const q = b + part * 64 + quarter % 2 * 32 + e % 2 * 16;
      const uint8_t* const h = b + 128 + part * 32 + e % 2 * 16;
      const float step = d * static_cast<float>(scales[e]);
      f(
          e * 16, step,
          -32 * step, [=]<class Kind>(int64_t i, Kind) __attribute__((always_inline)) {
            const auto both = Kind::bytes(q + i), two = Kind::bytes(h + i);
            const auto low = quarter < 2 ? both & 15 : both >> 4;
            return low | ((quarter < 2 ? two << (4 - 2 * quarter) : two >> (2 * quarter - 4)) & 48);
          });
    }
  }
};

// Calls f with the type of this number (block_types()); false: there is none.
template <class F>
bool with_type(uint32_t number, const F& f) {
  switch (number) {
    case 0:
      return f(Nibbles32<false>()), true;
    case 1:
      return f(Nibbles32<true>()), true;
    case 2:
      return f(Fives32<false>()), true;
    case 3:
      return f(Fives32<true>()), true;
    case 4:
      return f(Bytes32()), true;
    case 5:
      return f(K<false>()), true;
    case 6:
      return f(K<true>()), true;
    case 7:
      return f(Sixes()), true;
    default:
      return false;
  }
}

}  // namespace rw::cpu::REWIND_LEVEL
