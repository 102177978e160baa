#include "core/blocks/ggml_encoders.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/dtype.h"
#include "core/base/vector_versions.h"

namespace rw::blocks {

namespace {

using Values = std::span<const float>;

bool are_finite(Values x) {
  return std::ranges::all_of(x, [](float v) { return std::isfinite(v); });
}

// Stores an f16 and returns it, or infinity where it is too large.
float store_half(std::byte* at, float value) {
  const uint16_t bits = to_half(value);
  std::memcpy(at, &bits, sizeof bits);
  return from_half(bits);
}

// ---- blocks of 32 -------------------------------------------------------------------------------

float largest_with_sign(Values x) {
  float most = 0, found = 0;
  for (const float v : x)
    if (most < std::abs(v)) most = std::abs(v), found = v;
  return found;
}

// The codes in 16 bytes of nibbles, and their fifth bits in `fifth`, where there are some.
void store_codes(const std::array<int, 32>& codes, std::byte* nibbles, std::byte* fifth) {
  uint32_t high = 0;
  for (size_t j = 0; j < 16; ++j) {
    nibbles[j] = static_cast<std::byte>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
    high |= static_cast<uint32_t>(codes[j] >> 4 & 1) << j;
    high |= static_cast<uint32_t>(codes[j + 16] >> 4 & 1) << (j + 16);
  }
  if (fifth) std::memcpy(fifth, &high, sizeof high);
}

// Codes of `levels` values around the middle one; the largest value gets the lowest code.
bool encode_symmetric(const float* values, std::byte* block, int levels) {
  const Values x(values, 32);
  if (!are_finite(x)) return false;
  const int middle = levels / 2;
  const float d = largest_with_sign(x) / static_cast<float>(-middle);
  const float inverse = std::isnormal(d) ? 1 / d : 0;
  if (!std::isfinite(store_half(block, d))) return false;
  // The sum is rounded once, as where ggml is compiled for processors with such an instruction.
  std::array<int, 32> codes;
  for (size_t i = 0; i < 32; ++i)
    codes[i] = std::min(
        levels - 1,
        static_cast<int>(static_cast<float>(double{x[i]} * double{inverse} + middle + 0.5)));
  store_codes(codes, block + (levels == 32 ? 6 : 2), levels == 32 ? block + 2 : nullptr);
  return true;
}

// Codes of `levels` values from the least on.
bool encode_from_least(const float* values, std::byte* block, int levels) {
  const Values x(values, 32);
  if (!are_finite(x)) return false;
  const auto [least, most] = std::ranges::minmax(x);
  const float d = (most - least) / static_cast<float>(levels - 1);
  const float inverse = std::isnormal(d) ? 1 / d : 0;
  if (!std::isfinite(store_half(block, d)) || !std::isfinite(store_half(block + 2, least)))
    return false;
  std::array<int, 32> codes;
  for (size_t i = 0; i < 32; ++i)
    codes[i] = std::min(levels - 1, static_cast<int>((x[i] - least) * inverse + 0.5f));
  store_codes(codes, block + (levels == 32 ? 8 : 4), levels == 32 ? block + 4 : nullptr);
  return true;
}

// ---- blocks of 256 ------------------------------------------------------------------------------

// The values of a sub-block are step * code - minimum, with codes from `low` to `high`.
struct Scale {
  float step = 0, minimum = 0;
};
struct Codes {
  float low, high;
};

// The nearest code, of even ones where two are as near.
float code_of(float x, Scale s, float inverse, Codes codes) {
  constexpr float whole = 12582912;  // 1.5 * 2^23: from there on, floats are whole numbers
  const float code = (x + s.minimum) * inverse;
  const float inside = code < codes.low ? codes.low : code > codes.high ? codes.high : code;
  return inside + whole - whole;
}
float inverse_of(Scale s) {
  return std::isnormal(s.step) ? 1 / s.step : 0;
}

// Sums over a sub-block with the codes that a scale gives.
struct Sums {
  float error = 0;                     // squares of what is lost
  float q = 0, qq = 0, x = 0, xq = 0;  // of codes q and values x
};

REWIND_VECTOR_VERSIONS
Sums sums_of(const float* x, size_t count, Scale s, Codes codes) {
  constexpr size_t lanes = 8;
  float error[lanes] = {}, q[lanes] = {}, qq[lanes] = {}, all[lanes] = {}, xq[lanes] = {};
  const float inverse = inverse_of(s);
  for (size_t i = 0; i < count; i += lanes)
    for (size_t k = 0; k < lanes; ++k) {
      const float v = x[i + k], code = code_of(v, s, inverse, codes);
      const float rest = s.step * code - s.minimum - v;
      error[k] += rest * rest;
      q[k] += code;
      qq[k] += code * code;
      all[k] += v;
      xq[k] += v * code;
    }
  Sums sums;
  for (size_t k = 0; k < lanes; ++k) {
    sums.error += error[k];
    sums.q += q[k];
    sums.qq += qq[k];
    sums.x += all[k];
    sums.xq += xq[k];
  }
  return sums;
}

// The scale with the least sum of squares for the codes of these sums; no minimum is negative.
Scale refitted(const Sums& sums, size_t count, bool has_minimum) {
  const double n = static_cast<double>(count), q = sums.q, qq = sums.qq, x = sums.x, xq = sums.xq;
  const double determinant = n * qq - q * q;
  if (has_minimum && determinant > 0) {
    const double step = (n * xq - q * x) / determinant, minimum = (q * xq - qq * x) / determinant;
    if (minimum >= 0) return {static_cast<float>(step), static_cast<float>(minimum)};
  }
  return {qq > 0 ? static_cast<float>(xq / qq) : 0, 0};
}

// A scale with a small sum of squares: from some first ones, codes and scale are fitted to each
// other in turns.
Scale best_scale(Values x, Codes codes, bool has_minimum) {
  const auto [least, most] = std::ranges::minmax(x);
  Scale best;
  float error = sums_of(x.data(), x.size(), best, codes).error;
  constexpr int tries = 4, turns = 3;
  for (int i = -tries; i <= tries; ++i) {
    const float levels = (codes.high - codes.low) * (1 + 0.06f * static_cast<float>(i));
    const float minimum = has_minimum ? std::max(0.0f, -least) : 0;
    Scale s = {has_minimum ? (most + minimum) / levels : 2 * largest_with_sign(x) / -levels,
               minimum};
    for (int turn = 0; turn < turns && std::isfinite(1 / s.step); ++turn) {
      const Sums sums = sums_of(x.data(), x.size(), s, codes);
      if (sums.error < error) error = sums.error, best = s;
      s = refitted(sums, x.size(), has_minimum);
    }
  }
  return best;
}

// The scales of all sub-blocks as whole numbers of a common step and a common minimum.
template <int count>
struct Scales {
  std::array<int, count> steps{}, minima{};
  float step = 0, minimum = 0;  // common

  Scale operator[](size_t j) const {
    return {step * static_cast<float>(steps[j]), minimum * static_cast<float>(minima[j])};
  }

  // Rounds these, and takes neighbours that are better.
  void round(std::span<const Scale, count> wanted, const float* values, Codes codes, int least_step,
             int most) {
    constexpr size_t size = 256 / count;
    const auto whole = [](float x, float unit) {
      return unit == 0 ? 0 : static_cast<int>(std::lround(x / unit));
    };
    for (size_t j = 0; j < count; ++j) {
      const int first = whole(wanted[j].step, step), second = whole(wanted[j].minimum, minimum);
      const int around = minimum == 0 ? 0 : 1;
      float error = -1;
      for (int a = first - 1; a <= first + 1; ++a)
        for (int b = second - around; b <= second + around; ++b) {
          const int s = std::clamp(a, least_step, most), m = std::clamp(b, 0, most);
          const Scale tried{step * static_cast<float>(s), minimum * static_cast<float>(m)};
          const float found = sums_of(values + j * size, size, tried, codes).error;
          if (error < 0 || found < error) error = found, steps[j] = s, minima[j] = m;
        }
    }
  }
};

// Packs 8 steps and 8 minima of 6 bits into 12 bytes.
void store_six_bits(const Scales<8>& scales, std::byte* s) {
  const auto byte = [](int bits) { return static_cast<std::byte>(bits); };
  for (size_t j = 0; j < 4; ++j) {
    const int a = scales.steps[j], b = scales.steps[j + 4], m = scales.minima[j],
              o = scales.minima[j + 4];
    s[j] = byte(a | b >> 4 << 6);
    s[j + 4] = byte(m | o >> 4 << 6);
    s[j + 8] = byte((b & 15) | (o & 15) << 4);
  }
}

bool encode_k(const float* values, std::byte* block, Codes codes, std::byte* nibbles,
              std::byte* fifth) {
  if (!are_finite({values, 256})) return false;
  std::array<Scale, 8> wanted;
  Scale most;
  for (size_t j = 0; j < 8; ++j) {
    wanted[j] = best_scale({values + j * 32, 32}, codes, true);
    most.step = std::max(most.step, wanted[j].step);
    most.minimum = std::max(most.minimum, wanted[j].minimum);
  }
  Scales<8> scales;
  scales.step = store_half(block, most.step / 63);
  scales.minimum = store_half(block + 2, most.minimum / 63);
  if (!std::isfinite(scales.step) || !std::isfinite(scales.minimum)) return false;
  scales.round(wanted, values, codes, 0, 63);
  store_six_bits(scales, block + 4);
  std::memset(nibbles, 0, 128);
  if (fifth) std::memset(fifth, 0, 32);
  for (size_t j = 0; j < 8; ++j)
    for (size_t i = 0; i < 32; ++i) {
      const Scale s = scales[j];
      const int code = static_cast<int>(code_of(values[j * 32 + i], s, inverse_of(s), codes));
      nibbles[j / 2 * 32 + i] |= static_cast<std::byte>((code & 15) << j % 2 * 4);
      if (fifth) fifth[i] |= static_cast<std::byte>((code >> 4) << j);
    }
  return true;
}

}  // namespace

bool encode_q4_0(const float* values, std::byte* block) {
  return encode_symmetric(values, block, 16);
}
bool encode_q4_1(const float* values, std::byte* block) {
  return encode_from_least(values, block, 16);
}
bool encode_q5_0(const float* values, std::byte* block) {
  return encode_symmetric(values, block, 32);
}
bool encode_q5_1(const float* values, std::byte* block) {
  return encode_from_least(values, block, 32);
}

bool encode_q8_0(const float* values, std::byte* block) {
  const Values x(values, 32);
  if (!are_finite(x)) return false;
  const float d = std::abs(largest_with_sign(x)) / 127, inverse = std::isnormal(d) ? 1 / d : 0;
  if (!std::isfinite(store_half(block, d))) return false;
  for (size_t j = 0; j < 32; ++j)
    block[2 + j] = static_cast<std::byte>(static_cast<int8_t>(std::round(x[j] * inverse)));
  return true;
}

bool encode_q4_k(const float* values, std::byte* block) {
  return encode_k(values, block, {0, 15}, block + 16, nullptr);
}
bool encode_q5_k(const float* values, std::byte* block) {
  return encode_k(values, block, {0, 31}, block + 48, block + 16);
}

bool encode_q6_k(const float* values, std::byte* block) {
  if (!are_finite({values, 256})) return false;
  constexpr Codes codes = {-32, 31};
  std::array<Scale, 16> wanted;
  float most = 0;
  for (size_t j = 0; j < 16; ++j) {
    wanted[j] = best_scale({values + j * 16, 16}, codes, false);
    if (std::abs(wanted[j].step) > std::abs(most)) most = wanted[j].step;
  }
  Scales<16> scales;
  scales.step = store_half(block + 208, most / -128);  // there is one negative number more
  if (!std::isfinite(scales.step)) return false;
  scales.round(wanted, values, codes, -128, 127);
  std::memset(block, 0, 192);
  for (size_t e = 0; e < 256; ++e) {
    const Scale s = scales[e / 16];
    const int code = static_cast<int>(code_of(values[e], s, inverse_of(s), codes)) + 32;
    const size_t half = e / 128, quarter = e / 32 % 4, i = e % 32;
    block[half * 64 + quarter % 2 * 32 + i] |=
        static_cast<std::byte>((code & 15) << quarter / 2 * 4);
    block[128 + half * 32 + i] |= static_cast<std::byte>((code >> 4) << quarter * 2);
  }
  for (size_t j = 0; j < 16; ++j) block[192 + j] = static_cast<std::byte>(scales.steps[j]);
  return true;
}

}  // namespace rw::blocks
