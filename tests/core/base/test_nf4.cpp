// Matrices in NF4: the bits of bitsandbytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/blocks/nf4.h"

namespace rw::test {

namespace {

// The first bytes of codes, the codes and factors of scales with their offset, and the last floats.
struct GoldenNf4 {
  uint64_t rows, columns;
  std::vector<int> codes, scales;
  float offset;
  std::vector<float> factors, last;
};

#include "tests/goldens/nf4.inc"

std::vector<float> nf4_input(uint64_t count) {
  std::vector<float> values;
  for (uint64_t i = 0; i < count; ++i)
    values.push_back((static_cast<float>((i * 7919 + i / 64 * 131) % 257) - 128) / 64 *
                     static_cast<float>(1 + i / 64 % 7));
  return values;
}

float nf4_float_at(const std::byte* from, size_t i) {
  float value;
  std::memcpy(&value, from + i * sizeof value, sizeof value);
  return value;
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("nf4: codes, scales and floats are those of bitsandbytes, bit for bit") {
  const auto map = blocks::nf4_scale_values();
  CHECK(std::vector<float>(map.begin(), map.end()) == nf4_map_golden);
  for (const GoldenNf4& golden : nf4_goldens) {
    CAPTURE(golden.rows);
    const uint64_t row_bytes = blocks::nf4_row_bytes(golden.columns), all = golden.rows * row_bytes;
    std::vector<std::byte> stored(blocks::nf4_stored_rows(golden.rows, golden.columns) * row_bytes);
    REQUIRE(blocks::encode_nf4(nf4_input(golden.rows * golden.columns), golden.columns, stored));
    const std::byte* const shared = &stored[all];
    for (size_t i = 0; i < golden.codes.size(); ++i)
      REQUIRE(std::to_integer<int>(stored[i]) == golden.codes[i]);
    for (size_t i = 0; i < golden.scales.size(); ++i)
      REQUIRE(std::to_integer<int>(shared[blocks::nf4_code_at(i)]) == golden.scales[i]);
    CHECK(nf4_float_at(shared, 0) == map[0]);
    CHECK(nf4_float_at(shared, 256) == golden.offset);
    for (size_t i = 0; i < golden.factors.size(); ++i)
      CHECK(nf4_float_at(shared + blocks::nf4_factor_at(i * 256), 0) == golden.factors[i]);
    std::byte block[36];
    const uint64_t last = golden.scales.size() - 1;
    std::memcpy(block, &stored[last * 32], 32);
    const float scale = blocks::nf4_scale(shared, last);
    std::memcpy(block + 32, &scale, sizeof scale);
    std::vector<float> values(64);
    blocks::nf4.decode(block, values.data());
    CHECK(values == golden.last);
  }
}

TEST_CASE("nf4: sizes, and what is refused") {
  CHECK(blocks::nf4_row_bytes(4096) == 2048);
  CHECK(blocks::nf4_shared_bytes(256) == 258 * 4 + 256);
  CHECK(blocks::nf4_shared_bytes(257) == 259 * 4 + 257);
  // These are 4.13 bits a weight.
  CHECK(blocks::nf4_stored_rows(4096, 4096) == 4096 + 131);
  for (const uint64_t columns : {64, 1024, 14336})
    for (uint64_t rows = 1; rows < 3000; rows += 1 + rows / 9) {
      const uint64_t stored = blocks::nf4_stored_rows(rows, columns);
      REQUIRE(blocks::nf4_rows(stored, columns) == rows);
    }
  CHECK(blocks::nf4_rows(1, 64) == 0);
  CHECK(blocks::nf4_rows(blocks::nf4_stored_rows(1, 64) - 1, 64) == 0);
  std::vector<float> values(64, 1);
  std::vector<std::byte> stored(blocks::nf4_stored_rows(1, 64) * 32);
  CHECK(blocks::encode_nf4(values, 64, stored));
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    values[40] = bad;
    CHECK(!blocks::encode_nf4(values, 64, stored));
  }
}

TEST_SUITE_END();

}  // namespace rw::test
