#include "core/blocks/nf4.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "shaders/params.h"

namespace rw::blocks {

namespace {

constexpr uint32_t block_elements = NF4_BLOCK, block_bytes = NF4_BLOCK / 2;
constexpr size_t offset_at = 256 * sizeof(float), groups_at = offset_at + sizeof(float);
static_assert(nf4_group == NF4_GROUP);

float float_at(const std::byte* from, size_t at) {
  float value;
  std::memcpy(&value, from + at, sizeof value);
  return value;
}

void store_float(std::byte* to, float value) {
  std::memcpy(to, &value, sizeof value);
}

void decode_nf4(const std::byte* block, float* values) {
  const float scale = float_at(block, block_bytes);
  for (size_t i = 0; i < block_elements / 2; ++i) {
    const auto both = std::to_integer<size_t>(block[i]);
    values[2 * i] = nf4_values()[both >> 4] * scale;
    values[2 * i + 1] = nf4_values()[both & 15] * scale;
  }
}

float largest_of(std::span<const float> x) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::abs(v));
  return largest;
}

// The number of means of neighbouring codes below x.
size_t nearest_nf4(float x) {
  const std::span<const float, 16> codes = nf4_values();
  size_t code = 0;
  while (code < 15 && (codes[code] + codes[code + 1]) / 2 < x) ++code;
  return code;
}

void encode_block(std::span<const float> x, float largest, std::byte* block) {
  const float inverse = 1 / std::max(largest, 1e-38f);
  const auto code_of = [&](float v) { return nearest_nf4(std::clamp(v * inverse, -1.0f, 1.0f)); };
  for (size_t i = 0; i < x.size(); i += 2)
    block[i / 2] = static_cast<std::byte>(code_of(x[i]) << 4 | code_of(x[i + 1]));
}

// The code of the value that is nearest to x; of two, the lower one.
std::byte nearest_scale(const std::array<float, 256>& map, float x) {
  const auto above = std::upper_bound(map.begin() + 1, map.end() - 1, x);
  const bool is_higher = std::abs(x - *above) < std::abs(x - *(above - 1));
  return static_cast<std::byte>(above - map.begin() - !is_higher);
}

void encode_scales(std::span<const float> scales, std::byte* shared) {
  const std::array<float, 256> map = nf4_scale_values();
  double sum = 0;
  for (const float scale : scales) sum += scale;
  const auto offset = static_cast<float>(sum / static_cast<double>(scales.size()));
  std::memcpy(shared, map.data(), sizeof map);
  store_float(shared + offset_at, offset);
  for (size_t first = 0; first < scales.size(); first += nf4_group) {
    std::vector<float> group;
    for (size_t b = first; b < std::min<size_t>(scales.size(), first + nf4_group); ++b)
      group.push_back(scales[b] - offset);
    const float factor = largest_of(group);
    store_float(shared + nf4_factor_at(first), factor);
    for (size_t i = 0; i < group.size(); ++i)
      shared[nf4_code_at(first + i)] = nearest_scale(map, factor > 0 ? group[i] / factor : 0);
  }
}

}  // namespace

const BlockType nf4 = {"NF4", block_elements, 1, block_bytes, false, decode_nf4, nullptr, true};

std::span<const float, 16> nf4_values() {
  static constexpr float values[16] = {NF4_VALUES};
  return values;
}

// dynamic_map() in the arithmetic of torch.linspace, which leaves other last bits.
std::array<float, 256> nf4_scale_values() {
  constexpr float low = 0.1f;
  std::array<float, 256> map{};
  size_t count = 0;
  for (int i = 0; i < 7; ++i) {
    const int parts = 1 << i;
    const float step = (1 - low) / static_cast<float>(parts);
    const auto bound = [&](int k) {
      return k < (parts + 1) / 2 ? static_cast<float>(double{low} + double{step} * k)
                                 : static_cast<float>(1 - double{step} * (parts - k));
    };
    const auto unit = static_cast<float>(std::pow(10.0, i - 6));
    for (int k = 0; k < parts; ++k) {
      const float value = (bound(k) + bound(k + 1)) / 2 * unit;
      map[count++] = value;
      map[count++] = -value;
    }
  }
  map[count++] = 0;
  map[count++] = 1;
  std::sort(map.begin(), map.end());
  return map;
}

uint64_t nf4_shared_bytes(uint64_t blocks) {
  return groups_at + (blocks + nf4_group - 1) / nf4_group * sizeof(float) + blocks;
}

uint64_t nf4_row_bytes(uint64_t columns) {
  return columns / block_elements * block_bytes;
}

uint64_t nf4_stored_rows(uint64_t rows, uint64_t columns) {
  const uint64_t row = nf4_row_bytes(columns);
  return rows + (nf4_shared_bytes(rows * (columns / block_elements)) + row - 1) / row;
}

uint64_t nf4_rows(uint64_t stored_rows, uint64_t columns) {
  // More rows share more, so this many are too few or right.
  uint64_t rows =
      stored_rows - std::min(stored_rows, nf4_stored_rows(stored_rows, columns) - stored_rows);
  while (nf4_stored_rows(rows, columns) < stored_rows) ++rows;
  return nf4_stored_rows(rows, columns) == stored_rows ? rows : 0;
}

uint64_t nf4_factor_at(uint64_t block) {
  return groups_at + block / nf4_group * (sizeof(float) + nf4_group);
}

uint64_t nf4_code_at(uint64_t block) {
  return nf4_factor_at(block) + sizeof(float) + block % nf4_group;
}

float nf4_scale(const std::byte* shared, uint64_t block) {
  const auto code = std::to_integer<size_t>(shared[nf4_code_at(block)]);
  const float scaled =
      float_at(shared, code * sizeof(float)) * float_at(shared, nf4_factor_at(block));
  return scaled + float_at(shared, offset_at);
}

bool encode_nf4(std::span<const float> values, uint64_t columns, std::span<std::byte> stored) {
  if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) return false;
  std::ranges::fill(stored, std::byte{0});
  std::vector<float> scales;
  for (size_t first = 0; first < values.size(); first += block_elements) {
    const std::span<const float> x = values.subspan(first, block_elements);
    scales.push_back(largest_of(x));
    encode_block(x, scales.back(), &stored[first / block_elements * block_bytes]);
  }
  encode_scales(scales, &stored[values.size() / columns * nf4_row_bytes(columns)]);
  return true;
}

}  // namespace rw::blocks
