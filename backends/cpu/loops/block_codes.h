// The blocks of matrices (core/blocks/block_type.h) as codes in registers, with their scales.
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
  REWIND_INLINE static Register signed_bytes(const uint8_t* at) {
    return (bytes(at) ^ 128) - 128;
  }
};
// Whole numbers of 16 bits take half the instructions, in registers of 32 bytes, and those of 8
// bits less than that.
#if defined(__AVX2__) && !defined(__AVX512F__)
#define REWIND_SHORTS 1
struct Shorts {
  using Lane = int16_t;
  typedef Lane Register __attribute__((vector_size(32)));
  static constexpr int64_t count = 16;

  REWIND_INLINE static Register bytes(const uint8_t* at) {
    return (Register)_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  REWIND_INLINE static Register signed_bytes(const uint8_t* at) {
    return (Register)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
};
struct Bytes {
  using Lane = uint8_t;
  typedef Lane Register __attribute__((vector_size(32)));
  static constexpr int64_t count = 32;

  REWIND_INLINE static Register bytes(const uint8_t* at) {
    return (Register)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }
};

// The steps of a block of 256 as whole numbers times a factor: word k of the lower and of the upper
// half belong to the halves of elements 32 k to 32 k + 31.
struct WholeSteps {
  float factor;
  __m256i words;

  REWIND_INLINE __m256i of(int64_t k) const {
    return _mm256_shuffle_epi8(words,
                               _mm256_set1_epi16(static_cast<int16_t>(2 * k + ((2 * k + 1) << 8))));
  }
};
#endif

REWIND_INLINE Vec floats(Ints::Register x) {
  return __builtin_convertvector(x, Vec);
}

REWIND_INLINE uint32_t word(const uint8_t* at) {
  uint32_t bits;
  __builtin_memcpy(&bits, at, sizeof bits);
  return bits;
}
REWIND_INLINE uint64_t eight_bytes(const uint8_t* at) {
  uint64_t bits;
  __builtin_memcpy(&bits, at, sizeof bits);
  return bits;
}
// The half at `at`, where two more bytes of the block follow: a register is loaded from memory only
// by whole words.
REWIND_INLINE float half(const uint8_t* at) {
#if defined(__F16C__)
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(word(at)))));
#else
  return from_half(static_cast<uint16_t>(word(at)));
#endif
}
// Likewise, where two bytes come before it.
REWIND_INLINE float last_half(const uint8_t* at) {
#if defined(__F16C__)
  const __m128i both = _mm_cvtsi32_si128(static_cast<int>(word(at - 2)));
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_srli_epi32(both, 16)));
#else
  return from_half(static_cast<uint16_t>(word(at - 2) >> 16));
#endif
}

typedef float Eight __attribute__((vector_size(32)));

// Each type calls f(first, step, low, codes) for the groups of its block that share a scale:
// element first + i, for i below `group`, is step * code + low, and codes(i, Kind()) has the codes
// from i on, one in each lane. For each eight groups, if there are so many, it calls g(lows) with
// their low ends.
struct NoLows {
  REWIND_INLINE void operator()(int, Eight) const {}
};

// Nibbles of 32 elements in 16 bytes, the first half of them in low nibbles.
template <class Kind>
REWIND_INLINE typename Kind::Register nibbles(const uint8_t* at, int64_t i) {
  const auto both = Kind::bytes(at + i % 16);
  return i < 16 ? both & 15 : both >> 4;
}
// Lane k is 16 where bit i + k of those at `at` is set, else 0.
template <class Kind>
REWIND_INLINE typename Kind::Register fifth_bits(const uint8_t* at, int64_t i) {
  using Lane = typename Kind::Lane;
  typename Kind::Register mask;
  for (int k = 0; k < Kind::count; ++k) mask[k] = static_cast<Lane>(1u << k);
  Lane bits;
  if (sizeof bits == 2)
    __builtin_memcpy(&bits, at + i / 8, sizeof bits);
  else
    bits = static_cast<Lane>(word(at) >> i);
  const auto all = bits - typename Kind::Register{};
  return ((all & mask) == mask) & 16;
}

template <bool has_minimum>
struct Nibbles32 {  // Q4_0, Q4_1
  static constexpr int64_t elements = 32, group = 32, bytes = has_minimum ? 20 : 18;
  static constexpr bool has_low = true;
  template <class F, class G = NoLows>
  REWIND_INLINE static void each_group(const uint8_t* b, const F& f, const G& = {}) {
    const float d = half(b), low = has_minimum ? last_half(b + 2) : -8 * d;
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
  template <class F, class G = NoLows>
  REWIND_INLINE static void each_group(const uint8_t* b, const F& f, const G& = {}) {
    const float d = half(b), low = has_minimum ? last_half(b + 2) : -16 * d;
    f(
        0, d, low, [=]<class Kind>(int64_t i, Kind) __attribute__((always_inline)) {
          return nibbles<Kind>(b + bytes - 16, i) | fifth_bits<Kind>(b + bytes - 20, i);
        });
  }
};

struct Bytes32 {  // Q8_0
  static constexpr int64_t elements = 32, group = 32, bytes = 34;
  static constexpr bool has_low = false;
  template <class F, class G = NoLows>
  REWIND_INLINE static void each_group(const uint8_t* b, const F& f, const G& = {}) {
    f(
        0, half(b), 0, [=]<class Kind>(int64_t i, Kind) __attribute__((always_inline)) {
          return Kind::signed_bytes(b + 2 + i);
        });
  }
};

// The bytes as floats; Byte says whether they have signs.
template <class Byte>
REWIND_INLINE Eight eight_floats(uint64_t bytes) {
#if defined(__AVX2__)
  const __m128i all = _mm_cvtsi64_si128(static_cast<int64_t>(bytes));
  constexpr bool is_signed = Byte(-1) < 0;
  return (Eight)_mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(all)
                                             : _mm256_cvtepu8_epi32(all));
#else
  Eight x;
  for (int i = 0; i < 8; ++i) x[i] = static_cast<float>(static_cast<Byte>(bytes >> 8 * i));
  return x;
#endif
}

// The steps and the low ends of eight sub-blocks, from 6 bits each in 12 bytes.
struct SubBlocks {
  uint64_t whole_steps;  // bytes
  Eight steps, lows;

  REWIND_INLINE explicit SubBlocks(const uint8_t* b) {
    const uint32_t s = word(b + 4), m = word(b + 8), high = word(b + 12);
    whole_steps = sixes(s, high & 0x0f0f0f0fu);
    steps = eight_floats<uint8_t>(whole_steps) * half(b);
    lows = eight_floats<uint8_t>(sixes(m, high >> 4 & 0x0f0f0f0fu)) * -last_half(b + 2);
  }

 private:
  // The first four have six bits in `first`; of the others the two high bits are there.
  REWIND_INLINE static uint64_t sixes(uint32_t first, uint32_t low_bits) {
    const uint32_t others = low_bits | (first >> 6 & 0x03030303u) << 4;
    return (first & 0x3f3f3f3fu) | uint64_t{others} << 32;
  }
};

template <bool has_fifth>
struct K {  // Q4_K, Q5_K
  static constexpr int64_t elements = 256, group = 32, bytes = has_fifth ? 176 : 144;
  static constexpr bool has_low = true;
  template <class F, class G = NoLows>
  REWIND_INLINE static void each_group(const uint8_t* b, const F& f, const G& g = {}) {
    const SubBlocks sub(b);
    g(0, sub.lows);
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
#ifdef REWIND_SHORTS
  REWIND_INLINE static WholeSteps whole_steps(const uint8_t* b) {
    const __m128i bytes = _mm_cvtsi64_si128(static_cast<int64_t>(SubBlocks(b).whole_steps));
    return {half(b), _mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(bytes))};
  }
#endif
};

struct Sixes {  // Q6_K
  static constexpr int64_t elements = 256, group = 16, bytes = 210;
  static constexpr bool has_low = true;
  template <class F, class G = NoLows>
  REWIND_INLINE static void each_group(const uint8_t* b, const F& f, const G& g = {}) {
    const float d = last_half(b + 208);
    Eight steps[2];
    for (int k = 0; k < 2; ++k) {
      steps[k] = eight_floats<int8_t>(eight_bytes(b + 192 + 8 * k)) * d;
      g(8 * k, steps[k] * -32);
    }
#pragma GCC unroll 16
    for (int e = 0; e < 16; ++e) {
      const int part = e / 8, quarter = e / 2 % 4;
      const uint8_t* const q = b + part * 64 + quarter % 2 * 32 + e % 2 * 16;
      const uint8_t* const h = b + 128 + part * 32 + e % 2 * 16;
      const float step = steps[e / 8][e % 8];
      f(
          e * 16, step,
          -32 * step, [=]<class Kind>(int64_t i, Kind) __attribute__((always_inline)) {
            const auto both = Kind::bytes(q + i), two = Kind::bytes(h + i);
            const auto low = quarter < 2 ? both & 15 : both >> 4;
            return low | ((quarter < 2 ? two << (4 - 2 * quarter) : two >> (2 * quarter - 4)) & 48);
          });
    }
  }
#ifdef REWIND_SHORTS
  REWIND_INLINE static WholeSteps whole_steps(const uint8_t* b) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 192));
    const __m128i evens = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return {last_half(b + 208), _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, evens))};
  }
#endif
};

struct NormalFloats {  // NF4, whose codes stand for no multiples of a scale
  static constexpr int64_t elements = NF4_BLOCK, bytes = NF4_BLOCK / 2;
  alignas(64) static constexpr float values[16] = {NF4_VALUES};

  // The scale of the block with this number among all of its matrix.
  REWIND_INLINE static float scale(const uint8_t* shared, int64_t number) {
    const uint8_t* const group = shared + 257 * 4 + number / NF4_GROUP * (4 + NF4_GROUP);
    const auto map = [=](int64_t i) { return float_of(word(shared + 4 * i)); };
    return map(group[4 + number % NF4_GROUP]) * float_of(word(group)) + map(256);
  }
  // The values of the codes from element i on, which the scale multiplies. A byte has two, the
  // first one in its high bits.
  REWIND_INLINE static Vec codes(const uint8_t* b, int64_t i) {
    b += i / 2;
#if defined(__AVX512F__)
    const __m256i shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
    const auto half = [&](const uint8_t* at) {
      return _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(word(at))), shifts);
    };
    const __m512i all = _mm512_inserti64x4(_mm512_castsi256_si512(half(b)), half(b + 4), 1);
    return (Vec)_mm512_permutexvar_ps(all, _mm512_load_ps(values));
#elif defined(__AVX2__)
    const __m256i shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
    const __m256i all = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(word(b))), shifts);
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_load_ps(values), all),
                 high = _mm256_permutevar8x32_ps(_mm256_load_ps(values + 8), all);
    return (Vec)_mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(all, 28)));
#else
    Vec x;
    for (int64_t k = 0; k < lanes; ++k) x[k] = values[b[k / 2] >> (k % 2 == 0 ? 4 : 0) & 15];
    return x;
#endif
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
    case 8:
      return f(NormalFloats()), true;
    default:
      return false;
  }
}

}  // namespace rw::cpu::REWIND_LEVEL
