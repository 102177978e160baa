// The block types: sizes, and answers that are known from elsewhere.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/blocks/block_type.h"

namespace rw::test {

namespace {

// Made by the gguf package.
struct GoldenBlocks {
  std::string type;
  std::vector<uint8_t> blocks;
  std::vector<float> values;
};

#include "tests/goldens/gguf.inc"

const BlockType& block_type(std::string_view name) {
  const auto types = block_types();
  const auto found = std::ranges::find(types, name, &BlockType::name);
  REQUIRE(found != types.end());
  return **found;
}

std::vector<float> decoded(const BlockType& type, const std::vector<std::byte>& blocks) {
  std::vector<float> values(blocks.size() / type.bytes() * type.elements);
  for (size_t i = 0; i < blocks.size() / type.bytes(); ++i)
    type.decode(&blocks[i * type.bytes()], &values[i * type.elements]);
  return values;
}

std::vector<std::byte> encoded(const BlockType& type, const std::vector<float>& values) {
  std::vector<std::byte> blocks(type.bytes_of(values.size()));
  for (size_t i = 0; i < values.size() / type.elements; ++i)
    REQUIRE(type.encode(&values[i * type.elements], &blocks[i * type.bytes()]));
  return blocks;
}

// A block that begins with these values and goes on with zeros.
std::vector<float> block_of(const BlockType& type, std::vector<float> values) {
  values.resize(type.elements);
  return values;
}

void check_codes(const BlockType& type, const std::vector<float>& values,
                 const std::vector<int>& codes, float scale) {
  const std::vector<std::byte> block = encoded(type, block_of(type, values));
  for (size_t i = 0; i < codes.size(); ++i) {
    CAPTURE(i);
    CHECK(std::to_integer<int>(block[i]) == codes[i]);
  }
  float stored;
  std::memcpy(&stored, &block[type.elements], sizeof stored);
  CHECK(stored == scale);
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("blocks: those of files have the values of the gguf package, bit for bit") {
  size_t tried = 0;
  for (const auto& [name, bytes, values] : golden_blocks) {
    CAPTURE(name);
    std::vector<std::byte> blocks(bytes.size());
    std::memcpy(blocks.data(), bytes.data(), bytes.size());
    CHECK(decoded(block_type(name), blocks) == values);
    ++tried;
  }
  const auto is_of_gguf = [](const BlockType* type) {
    return !type->has_two_tensors && !type->has_shared_scales;
  };
  CHECK(tried == static_cast<size_t>(std::ranges::count_if(block_types(), is_of_gguf)));
  for (const auto& [name, bytes] : rounded) {
    CAPTURE(name);
    const std::vector<std::byte> blocks = encoded(block_type(name), unrounded);
    REQUIRE(blocks.size() == bytes.size());
    CHECK(std::memcmp(blocks.data(), bytes.data(), blocks.size()) == 0);
  }
}

// ggml's quantize_row_*_ref() have 1.02 to 1.05 times these errors, as shares of the deviation.
TEST_CASE("blocks: those of 256 values lose little") {
  std::vector<float> values;
  uint32_t state = 1;
  for (int i = 0; i < 64 * 256; ++i) {
    float sum = -6;  // of a normal distribution, nearly
    for (int k = 0; k < 12; ++k)
      sum += static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / (1 << 24);
    values.push_back(sum);
  }
  for (const auto& [type, error] :
       {std::pair{&blocks::q4_k, 0.0694}, {&blocks::q5_k, 0.0345}, {&blocks::q6_k, 0.0169}}) {
    CAPTURE(type->name);
    const std::vector<float> back = decoded(*type, encoded(*type, values));
    double lost = 0, size = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      lost += (back[i] - values[i]) * (back[i] - values[i]);
      size += values[i] * values[i];
    }
    CHECK(std::sqrt(lost / size) == doctest::Approx(error).epsilon(0.01));
    const std::vector<float> none(type->elements);
    CHECK(decoded(*type, encoded(*type, none)) == none);
    // Blocks hold nearly all of what they have held before.
    const std::vector<float> again = decoded(*type, encoded(*type, back));
    double moved = 0;
    for (size_t i = 0; i < back.size(); ++i) moved += (again[i] - back[i]) * (again[i] - back[i]);
    CHECK(moved < 0.2 * lost);
  }
}

TEST_CASE("blocks: what a type cannot hold is refused") {
  using namespace blocks;
  std::vector<std::byte> block(512);
  const auto holds = [&](const BlockType& type, float value) {
    return type.encode(block_of(type, {1, value}).data(), block.data());
  };
  for (const float bad : {INFINITY, -INFINITY, NAN})
    for (const BlockType* type : block_types())
      if (type != &steps && type->encode) CHECK(!holds(*type, bad));
  for (const BlockType* type : block_types())
    if (!type->has_two_tensors && type->encode) CHECK(!holds(*type, 1e9f));  // its scale is an f16
  CHECK(holds(dynamic, 1e38f));
  CHECK(holds(dynamic, -1));
  CHECK(!holds(dynamic_unsigned, -1));
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    REQUIRE(holds(steps, bad));
    std::vector<float> values(steps.elements);
    steps.decode(block.data(), values.data());
    CHECK(std::ranges::all_of(values, [](float v) { return std::isnan(v); }));
  }
}

// bitsandbytes' create_dynamic_map() has these values; 0.5 lies between two of the largest decade.
TEST_CASE("blocks: moments in 8 bits") {
  check_codes(blocks::dynamic, {2, -2, 0, 1e-9f, -1.1e-6f}, {255, 0, 127, 127, 126}, 2);
  check_codes(blocks::dynamic_unsigned, {4, 0, 1e-30f, 4 * 0.9964844f}, {255, 0, 1, 254}, 4);
  const std::vector<float> none(blocks::dynamic.elements);
  CHECK(decoded(blocks::dynamic, encoded(blocks::dynamic, none)) == none);
  const std::vector<float> halves = block_of(blocks::dynamic, {1, 0.5f, -0.5f});
  const std::vector<float> back = decoded(blocks::dynamic, encoded(blocks::dynamic, halves));
  CHECK(back[0] == 1);
  CHECK(back[1] == doctest::Approx(0.4984375 + 0.0).epsilon(0.015));
  CHECK(back[1] == -back[2]);
}

TEST_CASE("blocks: activations in 8 bits") {
  // The step is 1; a code stands for the values up to a whole number of steps.
  check_codes(blocks::steps, {127, 126.5f, 126, 0.001f, 0, -0.5f, -1, -1.5f, -127, 1e-39f},
              {255, 255, 254, 129, 128, 127, 127, 126, 1, 128}, 1);
  const std::vector<float> values = block_of(blocks::steps, {127, 0.001f, 0, -1, -1.5f});
  const std::vector<float> back = decoded(blocks::steps, encoded(blocks::steps, values));
  const std::vector<float> expected = block_of(blocks::steps, {126.5f, 0.5f, 0, -0.5f, -1.5f});
  CHECK(back == expected);
  // The least step: zeros have one, too.
  check_codes(blocks::steps, {0}, {128}, 2.3509887e-38f);
}

TEST_CASE("blocks: sizes") {
  using namespace blocks;
  CHECK(q4_k.bytes() == 144);
  CHECK(q4_k.bytes_of(512) == 288);
  CHECK(q5_1.bytes_of(64) == 48);
  CHECK(q6_k.bytes_of(0) == 0);
  // The last block of a type of two tensors may be short.
  CHECK(steps.bytes_of(1) == 5);
  CHECK(steps.bytes_of(128) == 132);
  CHECK(steps.bytes_of(129) == 137);
  CHECK(dynamic.bytes_of(300) == 308);
  CHECK(dynamic.block_count(257) == 2);
  for (const BlockType* type : block_types()) {
    CHECK(type->code_bytes * 8 % type->elements == 0);  // whole bits
    CHECK((!type->has_two_tensors || type->code_bytes == type->elements));
  }
}

TEST_SUITE_END();

}  // namespace rw::test
