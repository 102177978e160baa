// The reference backend itself: memory, checks of calls, element types, random words.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "backends/reference/random.h"
#include "backends/reference/reference_backend.h"
#include "core/base/error.h"
#include "shaders/params.h"
#include "tests/fixtures/kernel_runner.h"

using namespace rw;
using namespace rw::kernels;
using rw::test::KernelRunner;

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("reference backend: memory") {
  auto backend = make_reference_backend();
  const uint32_t block = backend->allocate_block(1024);

  SUBCASE("new memory is NaN") {
    float value = 0;
    backend->read({block, 512, 4}, &value);
    CHECK(std::isnan(value));
  }
  SUBCASE("block numbers are reused") {
    const uint32_t other = backend->allocate_block(256);
    CHECK(other != block);
    backend->free_block(block);
    CHECK(backend->allocate_block(256) == block);
  }
  SUBCASE("mistakes are typed errors") {
    float value = 0;
    CHECK_THROWS_AS(backend->read({block, 1024, 4}, &value), DeviceError);
    CHECK_THROWS_AS(backend->read({block + 1, 0, 4}, &value), DeviceError);
    CHECK_THROWS_AS(backend->allocate_block(backend->info().max_block_bytes + 1), OutOfMemory);
    backend->free_block(block);
    CHECK_THROWS_AS(backend->free_block(block), DeviceError);
  }
}

// Values larger than the pieces in which memory is given back lie at odd places.
TEST_CASE("reference backend: values come into one block, one behind the other") {
  constexpr uint64_t MiB = uint64_t{1} << 20;
  auto backend = make_reference_backend();
  const uint32_t small = backend->allocate_block(1024), other = backend->allocate_block(256),
                 large = backend->allocate_block(9 * MiB + 256);
  const std::vector<BufferRange> values = {{small, 256, 512},
                                           {large, 256, 3 * MiB + 512},
                                           {large, 4 * MiB + 256, 768},
                                           {large, 7 * MiB, 2 * MiB + 256}};
  std::mt19937 random(1);
  std::vector<uint32_t> expected;
  for (const BufferRange& value : values) {
    std::vector<uint32_t> words(value.size / 4);
    for (uint32_t& word : words) word = random();
    backend->write(value, words.data());
    expected.insert(expected.end(), words.begin(), words.end());
  }
  const auto packed = backend->repack(values, 6 * MiB);
  REQUIRE(packed == small);
  std::vector<uint32_t> there(6 * MiB / 4);
  backend->read({*packed, 0, 6 * MiB}, there.data());
  CHECK(std::equal(expected.begin(), expected.end(), there.begin()));
  CHECK(std::all_of(there.begin() + static_cast<int64_t>(expected.size()), there.end(),
                    [](uint32_t word) { return word == UINT32_MAX; }));
  CHECK_THROWS_AS(backend->free_block(large), DeviceError);
  backend->free_block(other);
}

TEST_CASE("reference backend: a wrong call is an error that names the kernel") {
  KernelRunner cpu(make_reference_backend());
  const Binding x = cpu.upload({1, 2}), y = cpu.allocate(2);
  const AccumulateParams p{.offset = {}, .n = 2, .a = 1};
  Binding ints = y, read_only = y, shifted = y;
  ints.dtype = DType::i32;
  read_only.access = Access::read;
  shifted.range.offset = 4;

  CHECK_THROWS_WITH_AS(cpu.run("no_such", {x, y}, p),
                       "[no_such] the reference backend has no kernel of this name", ValueError);
  CHECK_THROWS_WITH_AS(cpu.run("accumulate", {x}, p), "[accumulate] needs 2 bindings, got 1",
                       ValueError);
  CHECK_THROWS_WITH_AS(cpu.run("accumulate", {x, y}, FillParams{}),
                       "[accumulate] params must be 16 bytes, got 12", ValueError);
  CHECK_THROWS_WITH_AS(cpu.run("accumulate", {x, ints}, p),
                       "[accumulate] takes tensors of (f32 f32) or (f16 f32), got (f32 i32); cast "
                       "them",
                       DTypeError);
  CHECK_THROWS_AS(cpu.run("accumulate", {x, read_only}, p), ValueError);
  CHECK_THROWS_AS(cpu.run("accumulate", {x, shifted}, p), DeviceError);
  CHECK_THROWS_AS(cpu.run("accumulate", {x, y}, AccumulateParams{{1, 0}, 2, 1}), ShapeError);
}

TEST_CASE("half: known bit patterns") {
  const struct {
    float value;
    uint16_t bits;
  } exact[] = {{0.0f, 0x0000},      {-0.0f, 0x8000},       {1.0f, 0x3c00},
               {-2.0f, 0xc000},     {65504.0f, 0x7bff},    {0x1p-24f, 0x0001},
               {0x1p-14f, 0x0400},  {INFINITY, 0x7c00},    {1.0009765625f, 0x3c01},
               {-INFINITY, 0xfc00}, {0x1.ff8p-15f, 0x03ff}};
  for (const auto& c : exact) {
    CHECK(to_half(c.value) == c.bits);
    CHECK(from_half(c.bits) == c.value);
  }
  CHECK(to_half(1.0f / 3) == 0x3555);
  CHECK(to_half(1 + 0x1p-11f) == 0x3c00);      // a tie goes to the even one
  CHECK(to_half(1 + 3 * 0x1p-11f) == 0x3c02);  // here that is the larger one
  CHECK(to_half(0x1p-25f) == 0x0000);
  CHECK(to_half(0x1.8p-24f) == 0x0002);
  CHECK(to_half(65519.0f) == 0x7bff);
  CHECK(to_half(65520.0f) == 0x7c00);
  CHECK(std::isnan(from_half(to_half(NAN))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = from_half(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) REQUIRE(to_half(value) == bits);
  }
}

TEST_CASE("philox: known answers of Random123") {
  using Words = std::array<uint32_t, 4>;
  CHECK(reference::philox({0, 0, 0, 0}, {0, 0}) ==
        Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(reference::philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(reference::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                          {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: uniform, normal, dropout") {
  KernelRunner cpu(make_reference_backend());
  constexpr uint32_t n = 40000;
  const Binding y = cpu.allocate(n);
  RandomParams p{.offset = {}, .n = n, .a = 0, .b = 1};

  SUBCASE("the first uniform numbers are the known words") {
    cpu.run("random", {y}, p, {0});
    const auto values = cpu.download(y);
    CHECK(values[0] == 0x6627e8p-24f);
    CHECK(values[1] == 0xe169c5p-24f);
    CHECK(values[3] == 0x9b00dbp-24f);
  }
  SUBCASE("the counter carries into its high word") {
    p.counter_lo = 0xffffffff;
    cpu.run("random", {y}, p, {0});
    const auto carried = cpu.download(y);
    p.counter_lo = 0;
    p.counter_hi = 1;
    cpu.run("random", {y}, p, {0});
    const auto direct = cpu.download(y);
    CHECK(carried[4] == direct[0]);
    CHECK(carried[9] == direct[5]);
  }
  SUBCASE("normal has its mean and deviation") {
    p.a = 2;
    p.b = 3;
    cpu.run("random", {y}, p, {1});
    double mean = 0, variance = 0;
    const auto values = cpu.download(y);
    for (float v : values) mean += v / n;
    for (float v : values) variance += (v - mean) * (v - mean) / n;
    CHECK(mean == doctest::Approx(2).epsilon(0.03));
    CHECK(std::sqrt(variance) == doctest::Approx(3).epsilon(0.02));
  }
  SUBCASE("dropout keeps the expected share and scales it") {
    const Binding x = cpu.upload(std::vector<float>(n, 3.0f));
    cpu.run("dropout", {x, y}, DropoutParams{.offset = {}, .n = n, .keep = 0.75f});
    uint32_t kept = 0;
    for (float v : cpu.download(y)) {
      REQUIRE((v == 0 || v == 4));
      kept += v == 4;
    }
    CHECK(kept / double{n} == doctest::Approx(0.75).epsilon(0.02));
  }
}

TEST_SUITE_END();
