#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/blocks/block_type.h"
#include "shaders/params.h"

namespace rw {

std::array<float, 256> dynamic_map(bool is_signed) {
  constexpr int exponents = 7;
  std::array<float, 256> map{};
  size_t count = 0;
  for (int i = 0; i < exponents; ++i) {
    const double unit = std::pow(10.0, i - (exponents - 1));
    // The midpoints of equal parts of [0.1, 1].
    const int parts = 1 << (is_signed ? i : i + 1);
    for (int k = 0; k < parts; ++k) {
      const auto value = static_cast<float>(unit * (0.1 + 0.9 * (k + 0.5) / parts));
      map[count++] = value;
      if (is_signed) map[count++] = -value;
    }
  }
  map[count++] = 0;
  map[count++] = 1;
  std::sort(map.begin(), map.end());
  return map;
}

std::array<float, 256> dynamic_bounds(const std::array<float, 256>& map) {
  std::array<float, 256> bounds{};
  for (size_t i = 0; i + 1 < map.size(); ++i)
    bounds[i] = static_cast<float>((double{map[i]} + map[i + 1]) / 2);
  bounds.back() = std::numeric_limits<float>::infinity();
  return bounds;
}

namespace {

template <class T>
void store(std::byte* target, T value) {
  std::memcpy(target, &value, sizeof value);
}

float scale_of(const std::byte* block, uint32_t elements) {
  float scale;
  std::memcpy(&scale, block + elements, sizeof scale);
  return scale;
}

template <bool is_signed>
const std::array<float, 256>& map_of() {
  static const std::array<float, 256> map = dynamic_map(is_signed);
  return map;
}

template <bool is_signed>
void decode_dynamic(const std::byte* block, float* values) {
  const float largest = scale_of(block, ADAM_8BIT_BLOCK);
  for (uint32_t i = 0; i < ADAM_8BIT_BLOCK; ++i)
    values[i] = map_of<is_signed>()[std::to_integer<uint8_t>(block[i])] * largest;
}

template <bool is_signed>
bool encode_dynamic(const float* values, std::byte* block) {
  static const std::array<float, 256> bounds = dynamic_bounds(map_of<is_signed>());
  float largest = 0;
  for (uint32_t i = 0; i < ADAM_8BIT_BLOCK; ++i) {
    if (!std::isfinite(values[i]) || (!is_signed && values[i] < 0)) return false;
    largest = std::max(largest, std::abs(values[i]));
  }
  for (uint32_t i = 0; i < ADAM_8BIT_BLOCK; ++i) {
    const auto code =
        std::partition_point(bounds.begin(), bounds.end() - 1,
                             [&](float bound) { return values[i] > bound * largest; }) -
        bounds.begin();
    const bool is_above_0 = !is_signed && values[i] > 0;
    block[i] = static_cast<std::byte>(std::max<int64_t>(code, is_above_0));
  }
  store(block + ADAM_8BIT_BLOCK, largest);
  return true;
}

// In double, so that the only rounding is that of the result.
void decode_steps(const std::byte* block, float* values) {
  const double step = scale_of(block, QUANTIZE_BLOCK);
  for (uint32_t i = 0; i < QUANTIZE_BLOCK; ++i) {
    const int k = std::to_integer<uint8_t>(block[i]) - QUANTIZE_ZERO;
    values[i] = static_cast<float>((k + (k > 0 ? -0.5 : k < 0 ? 0.5 : 0)) * step);
  }
}

float step_of(const float* values) {
  double largest = 0;
  for (uint32_t i = 0; i < QUANTIZE_BLOCK; ++i) {
    if (!std::isfinite(values[i])) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::fabs(double{values[i]}));
  }
  return static_cast<float>(std::max(largest / QUANTIZE_LEVELS, double{QUANTIZE_LEAST}));
}

bool encode_steps(const float* values, std::byte* block) {
  const float step = step_of(values);
  for (uint32_t i = 0; i < QUANTIZE_BLOCK; ++i) {
    int k = 0;
    if (!std::isnan(step) && std::fabs(values[i]) >= std::numeric_limits<float>::min())
      k = static_cast<int>(
          std::clamp(std::ceil(std::fabs(double{values[i]}) / step), 1.0, double{QUANTIZE_LEVELS}));
    block[i] = static_cast<std::byte>(QUANTIZE_ZERO + (values[i] < 0 ? -k : k));
  }
  store(block + QUANTIZE_BLOCK, step);
  return true;
}

}  // namespace

namespace blocks {

const BlockType dynamic = {
    "dynamic",           ADAM_8BIT_BLOCK, 4, ADAM_8BIT_BLOCK, true, decode_dynamic<true>,
    encode_dynamic<true>};
const BlockType dynamic_unsigned = {
    "dynamic_unsigned",    ADAM_8BIT_BLOCK,      4, ADAM_8BIT_BLOCK, true,
    decode_dynamic<false>, encode_dynamic<false>};
const BlockType steps = {"steps", QUANTIZE_BLOCK, 4,           QUANTIZE_BLOCK,
                         true,    decode_steps,   encode_steps};

}  // namespace blocks

std::span<const BlockType* const> block_types() {
  using namespace blocks;
  static constexpr const BlockType* all[] = {
      &q4_0, &q4_1, &q5_0, &q5_1, &q8_0, &q4_k, &q5_k, &q6_k, &nf4, &dynamic, &dynamic_unsigned,
      &steps};
  return all;
}

}  // namespace rw
