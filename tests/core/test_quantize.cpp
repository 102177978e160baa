// Values in 8 bits: the error of every element, and storages that are kept so.
#include <cmath>
#include <limits>

#include "core/blocks/block_type.h"
#include "core/tensor/quantize.h"
#include "ops/operators.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr size_t quantized_block = 128;

// Values of very different sizes from block to block, with zeros among them.
std::vector<float> block_values(size_t n) {
  std::vector<float> values = some_values(static_cast<int>(n), 3);
  for (size_t i = 0; i < n; ++i) {
    values[i] *= std::pow(10.0f, static_cast<float>(i / quantized_block % 5) - 2);
    if (i % 7 == 3) values[i] = 0;
  }
  return values;
}

void check_quantization(size_t n, DType dtype) {
  const Tensor x = tensor(block_values(n), {static_cast<int64_t>(n)}, dtype);
  const QuantizedBlocks kept = quantize_blocks(x);
  const std::vector<float> exact = x.to_vector(), steps = kept.steps.to_vector();
  const std::vector<float> back = dequantize_blocks(kept, dtype).to_vector();
  REQUIRE(steps.size() == (n + quantized_block - 1) / quantized_block);
  CHECK(blocks::steps.bytes_of(n) == n + 4 * steps.size());
  const float rounding = dtype == DType::f32 ? 0x1p-22f : dtype == DType::f16 ? 0x1p-11f : 0x1p-8f;
  for (size_t i = 0; i < n; ++i) {
    const float error = std::fabs(back[i] - exact[i]);
    REQUIRE(error <= steps[i / quantized_block] / 2 + rounding * std::fabs(exact[i]) +
                         1e-7f * steps[i / quantized_block]);
    REQUIRE((exact[i] > 0) == (back[i] > 0));
    REQUIRE((exact[i] < 0) == (back[i] < 0));
  }
  for (size_t b = 0; b < steps.size(); ++b) {
    float most = 0;
    for (size_t i = b * quantized_block; i < std::min(n, (b + 1) * quantized_block); ++i)
      most = std::max(most, std::fabs(exact[i]));
    CHECK(steps[b] == doctest::Approx(std::max(most / 127, 2.3509887e-38f)));
  }
}

void check_storage() {
  Tensor x = tensor(some_values(64 * 150, 1), {64, 150});
  Device& device = x.device();
  const uint64_t outside = device.live();
  {
    const Tensor y = x * 3.0f;
    const std::shared_ptr<Storage> storage = y.impl().storage;
    const std::vector<float> exact = y.to_vector();
    const std::vector<float> expected =
        dequantize_blocks(quantize_blocks(y), DType::f32).to_vector();
    const uint64_t live = device.live();
    const uint32_t version = storage->version();
    keep_in_8_bits(storage);
    keep_in_8_bits(storage);  // the second one does nothing
    CHECK(storage->is_swapped_out());
    CHECK(device.live() < outside + (live - outside) * 3 / 10);
    CHECK_THROWS_AS(y.to_vector(), DeviceError);
    const Tensor z = y[0] * 1.0f;  // a view brings all of it back
    CHECK(!storage->is_swapped_out());
    CHECK(!storage->keeper());
    CHECK(y.to_vector() == expected);
    CHECK(expected != exact);
    CHECK(storage->version() == version);
    keep_in_8_bits(storage);
  }
  CHECK(device.live() == outside);  // it died while it was away
}

}  // namespace

TEST_CASE("quantize: each element is at most half a step from what it was, and keeps its sign") {
  on_each_device([] {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const size_t n : {1, 127, 128, 129, 1000, 70'000}) check_quantization(n, dtype);
  });
}

TEST_CASE("quantize: what is not finite makes its block NaN") {
  on_each_device([] {
    for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
      std::vector<float> values(3 * quantized_block, 1.0f);
      values[quantized_block + 5] = bad;
      const QuantizedBlocks kept = quantize_blocks(tensor(values, {3 * quantized_block}));
      const std::vector<float> back = dequantize_blocks(kept, DType::f32).to_vector();
      for (size_t i = 0; i < back.size(); ++i)
        CHECK(std::isnan(back[i]) == (i / quantized_block == 1));
    }
  });
}

TEST_CASE("quantize: storages in 8 bits, until a kernel needs them") {
  on_each_device(check_storage);
}

TEST_CASE("quantize: wrong inputs" * doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  CHECK(contains(message_of<DTypeError>([] {
                   quantize_blocks(tensor({1, 2}, {2}, DType::i32));
                 }),
                 "[quantize_blocks] only floats are kept in 8 bits, got i32"));
  const QuantizedBlocks kept = quantize_blocks(zeros({300}));
  CHECK_THROWS_AS(dequantize_blocks(kept, DType::i32), DTypeError);
  CHECK_THROWS_AS(dequantize_blocks({kept.steps, kept.steps}, DType::f32), DTypeError);
  CHECK(contains(
      message_of<ShapeError>([&] {
        dequantize_blocks({kept.codes, zeros({2})}, DType::f32);
      }),
      "[dequantize_blocks] there must be a step for each block of 128 codes, got f32 (2)"));
  CHECK_THROWS_AS(keep_in_8_bits(zeros({4}, DType::u8).impl().storage), DTypeError);
}
