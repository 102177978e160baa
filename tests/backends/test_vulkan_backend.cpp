// Faults that only the Vulkan backend can have: transfers, addressing, grids, ordering. Other tests
// compare the kernels themselves with the CPU backend.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backends/open.h"
#include "backends/vulkan/vulkan_backend.h"
#include "core/backend/unsupported.h"
#include "core/base/error.h"
#include "core/memory/default_device.h"
#include "ops/ops.h"
#include "shaders/params.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/message_of.h"

namespace {

using namespace rw;
using test::Env;
using test::Without;

std::vector<std::byte> byte_pattern(size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = std::byte((i * 31 + (i >> 8) * 17 + seed * 97) & 255);
  return out;
}

uint32_t bits_of_element(DType dtype, float value) {
  return is_float(dtype) ? std::bit_cast<uint32_t>(value) : static_cast<uint32_t>(value);
}

// Sets y[first, first + n) = value; elements are counted from `offset` bytes of the block.
void fill_range(Backend& backend, BufferRange range, DType dtype, uint32_t first, uint32_t n,
                float value) {
  const kernels::FillParams p{{first}, n, bits_of_element(dtype, value)};
  const Binding y{range, dtype, Access::write};
  KernelCall call{"fill", {&y, 1}, std::as_bytes(std::span(&p, 1))};
  call.threads[0] = (n + REWIND_FLAT - 1) / REWIND_FLAT;
  backend.run(call);
}

std::vector<std::byte> element(DType dtype, float value) {
  std::vector<std::byte> out(size_of(dtype));
  const int32_t i = static_cast<int32_t>(value);
  const uint16_t h = to_16_bits(dtype, value);
  const void* from = dtype == DType::f32 ? static_cast<const void*>(&value)
                     : is_half(dtype)    ? static_cast<const void*>(&h)
                                         : static_cast<const void*>(&i);
  std::memcpy(out.data(), from, out.size());
  return out;
}

// Fills [first, first + n), and checks it and every byte around it.
void check_fill(Backend& backend, DType dtype, uint32_t first, uint32_t n) {
  CAPTURE(name(dtype));
  CAPTURE(first);
  CAPTURE(n);
  const size_t bytes = (first + n + 40) * size_of(dtype);
  const BufferRange range{backend.allocate_block(bytes), 0, bytes};
  std::vector<std::byte> want = byte_pattern(bytes, 3), got(bytes);
  backend.write(range, want.data());
  fill_range(backend, range, dtype, first, n, 77);
  backend.read(range, got.data());
  const std::vector<std::byte> one = element(dtype, 77);
  for (size_t i = first; i < first + n; ++i)
    std::copy(one.begin(), one.end(), want.begin() + i * one.size());
  CHECK(got == want);
  backend.free_block(range.block);
}

void check_fills(Backend& backend, bool with_halves = true) {
  std::vector<DType> dtypes = {DType::f32, DType::i32, DType::u8};
  if (with_halves) dtypes.insert(dtypes.end(), {DType::f16, DType::bf16});
  for (DType dtype : dtypes)
    for (uint32_t first : {0u, 1u, 8u, 13u})
      for (uint32_t n : {0u, 1u, 7u, 8u, 1000u, 1003u}) check_fill(backend, dtype, first, n);
}

void check_transfers(Backend& backend) {
  const size_t bytes = (20 << 20) + 13;
  const uint32_t block = backend.allocate_block(bytes);
  std::vector<std::byte> want = byte_pattern(bytes, 1), got(bytes);
  backend.write({block, 0, bytes}, want.data());
  // Uses odd offsets and sizes while work is still queued.
  for (size_t offset : {1, 255, 4099, (9 << 20) + 7})
    for (size_t size : {1, 3, 64, 5001}) {
      const std::vector<std::byte> part = byte_pattern(size, static_cast<unsigned>(offset + size));
      backend.write({block, offset, size}, part.data());
      std::copy(part.begin(), part.end(), want.begin() + static_cast<long>(offset));
    }
  backend.read({block, 0, bytes}, got.data());
  CHECK(got == want);
  backend.read({block, 4099, 77}, got.data());
  CHECK(std::equal(got.begin(), got.begin() + 77, want.begin() + 4099));
  backend.free_block(block);
}

std::unique_ptr<Backend> open() {
  return open_backend("vulkan");
}

bool has_addresses() {
  return open()->info().has("buffer addresses");
}

// f16 in words has no modules by address.
bool has_halves_by_address() {
  return has_addresses() && open()->info().has("16-bit storage");
}

// Computes a softmax of zeros in the middle of a block; the bytes around, which it must not touch,
// are not zero.
void check_softmax_inside(Backend& backend) {
  constexpr uint32_t n = 256;
  const uint32_t block = backend.allocate_block(3 * 4 * n);
  std::vector<float> want(3 * n), got(3 * n);
  for (uint32_t i = 0; i < n; ++i) want[i] = static_cast<float>(i);
  backend.write({block, 0, 3 * 4 * n}, want.data());
  std::fill_n(want.begin() + 2 * n, n, 1.0f / n);
  const Binding bindings[] = {{{block, 4 * n, 4 * n}, DType::f32, Access::read},
                              {{block, 8 * n, 4 * n}, DType::f32, Access::write}};
  const kernels::SoftmaxParams p{.rows = 1, .cols = n};
  const uint32_t variant = 0;
  backend.run({"softmax", bindings, std::as_bytes(std::span(&p, 1)), {1, 1, 1}, {&variant, 1}});
  backend.read({block, 0, 3 * 4 * n}, got.data());
  for (uint32_t i = 0; i < 3 * n; ++i) CHECK(got[i] == doctest::Approx(want[i]));
}

}  // namespace

TEST_CASE("vulkan: devices are listed and chosen by index, name and uuid") {
  const std::vector<DeviceListing> devices = list_devices();
  REQUIRE(!devices.empty());
  CHECK(open_backend("vulkan:0")->info().name == devices[0].info.name);
  CHECK(open_backend("vulkan:uuid=" + devices[0].info.uuid)->info().uuid == devices[0].info.uuid);
  CHECK(open_backend("vulkan:" + devices[0].info.name)->info().name == devices[0].info.name);
  CHECK_THROWS_AS(open_backend("vulkan:no such device"), DeviceError);
  CHECK_THROWS_AS(open_backend("abacus"), DeviceError);
}

TEST_CASE("vulkan: transfers") {
  check_transfers(*open());
}

TEST_CASE("vulkan: transfers through staging memory") {
  Without env("unified-memory");
  check_transfers(*open());
}

TEST_CASE("vulkan: staging memory waits for what lies in it") {
  Without env("unified-memory");
  auto backend = open();
  constexpr uint64_t bytes = (4 << 20) + 16;  // one in each of four chunks
  const uint32_t block = backend->allocate_block(6 * bytes);
  std::vector<std::byte> values(bytes);
  for (unsigned i = 0; i < 6; ++i) {
    std::ranges::fill(values, std::byte(i + 1));
    backend->write({block, i * bytes, bytes}, values.data());
  }
  for (unsigned i = 0; i < 6; ++i) {
    CAPTURE(i);
    backend->read({block, i * bytes, bytes}, values.data());
    CHECK(std::ranges::all_of(values, [&](std::byte b) { return b == std::byte(i + 1); }));
  }
}

TEST_CASE("vulkan: kernels find what begins inside a block") {
  const Without trusts("self-check");
  check_softmax_inside(*open());  // by texels, if the device has them
  const Without texels("texels");
  check_softmax_inside(*open());
  if (!has_addresses()) return;
  const Env range("REWIND_LIMITS", "range:64");
  check_softmax_inside(*open());
}

TEST_CASE("vulkan: fill in every dtype") {
  check_fills(*open());
}

TEST_CASE("vulkan: fill without 16-bit storage") {
  Without env("f16-storage");
  check_fills(*open());
}

TEST_CASE("vulkan: a device that was refused 16-bit floats computes in f32") {
  const Without trusts("self-check");
  const Without none("halves");
  const DeviceScope scope(Device::create(open_backend("vulkan")));
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const std::string error = test::message_of<Unsupported>([&] { full({8}, 1, dtype); });
    CHECK(error.find("16-bit floats") != std::string::npos);
  }
  CHECK(sum(full({8}, 1)).item() == 8);
}

TEST_CASE("vulkan: fill without push descriptors") {
  Without env("push-descriptors");
  check_fills(*open());
}

TEST_CASE("vulkan: bindings larger than the device's range go by address") {
  if (!has_addresses()) return;
  Env env("REWIND_LIMITS", "range:64");
  Without trusts("self-check");
  check_fills(*open(), has_halves_by_address());
  const auto fill_in = [](DType dtype) {
    auto backend = open();
    const BufferRange range{backend->allocate_block(1024), 0, 1024};
    fill_range(*backend, range, dtype, 0, 256, 1);
  };
  {
    Without packed("f16-storage");
    CHECK_NOTHROW(fill_in(DType::f32));
    CHECK_THROWS_AS(fill_in(DType::f16), DeviceError);
  }
  Without no_address("addresses");
  CHECK_THROWS_AS(fill_in(DType::f32), DeviceError);
}

TEST_CASE("vulkan: one-dimensional grids fold when they are too long") {
  auto backend = open();
  const uint32_t n = 8 * 64 * 65535 + 64 * 700 + 5;  // more than 65535 workgroups
  const BufferRange range{backend->allocate_block(n), 0, n};
  std::vector<uint8_t> got(n);
  backend->write(range, got.data());
  fill_range(*backend, range, DType::u8, 0, n, 5);
  backend->read(range, got.data());
  CHECK(std::all_of(got.begin(), got.end(), [](uint8_t v) { return v == 5; }));
}

TEST_CASE("vulkan: queued work behaves as if done in order") {
  const Env whole("REWIND_LIMITS", "dispatch-us:1000000000");  // without dispatches in parts
  Env env("REWIND_CHECK_HAZARDS", "1");
  for (const bool staged : {false, true}) {
    Without staging("unified-memory", staged);
    auto backend = open();
    const uint32_t n = 4096;
    const BufferRange range{backend->allocate_block(4 * n), 0, 4 * n};
    std::vector<float> want(n), got(n);
    backend->write(range, want.data());
    unsigned random = 1;
    for (int i = 0; i < 1000; ++i) {
      random = random * 1664525 + 1013904223;
      const uint32_t first = (random >> 8) % n, count = 1 + (random >> 20) % 500;
      const uint32_t size = std::min(count, n - first);
      const float value = static_cast<float>(i);
      std::fill_n(want.begin() + first, size, value);
      if (i % 7 == 0)
        backend->write({range.block, 4 * first, 4 * size}, &want[first]);
      else
        fill_range(*backend, range, DType::f32, first, size, value);
    }
    backend->read(range, got.data());
    CHECK(got == want);
    const BackendStats stats = backend->stats();
    CHECK(stats.dispatches < 1000);
    CHECK(stats.submits < stats.dispatches / 10);
    CHECK(stats.pipelines == 1);
  }
}

TEST_CASE("vulkan: independent steps share a barrier") {
  auto backend = open();
  const BufferRange a{backend->allocate_block(8192), 0, 4096}, b{a.block, 4096, 4096};
  fill_range(*backend, a, DType::f32, 0, 1024, 1);
  fill_range(*backend, b, DType::f32, 0, 1024, 2);
  CHECK(backend->stats().barriers == 0);
  fill_range(*backend, a, DType::f32, 0, 1024, 3);
  CHECK(backend->stats().barriers == 1);
  fill_range(*backend, b, DType::f32, 0, 1024, 4);
  CHECK(backend->stats().barriers == 1);
}

TEST_CASE("vulkan: two backends at once") {
  auto one = open(), two = open();
  check_fill(*one, DType::f16, 3, 500);
  check_fill(*two, DType::f16, 3, 500);
  check_fill(*one, DType::u8, 3, 500);
}

TEST_CASE("vulkan: wrong calls are refused") {
  auto backend = open();
  const BufferRange range{backend->allocate_block(1024), 0, 1024};
  CHECK_THROWS_AS(fill_range(*backend, {range.block, 4, 512}, DType::f32, 0, 8, 1), ValueError);
  CHECK_THROWS_AS(fill_range(*backend, {range.block, 0, 2048}, DType::f32, 0, 8, 1), ValueError);
  CHECK_THROWS_AS(fill_range(*backend, {range.block + 1, 0, 64}, DType::f32, 0, 8, 1), ValueError);
  const Binding y{range, DType::f32, Access::write};
  const kernels::FillParams p{{0}, 8, 0};
  const auto bytes = std::as_bytes(std::span(&p, 1));
  CHECK_THROWS_AS(backend->run({"no_such_kernel", {&y, 1}, bytes}), ValueError);
  CHECK_THROWS_AS(backend->run({"fill", {&y, 1}, bytes.first(8)}), ValueError);
  const Binding read{range, DType::f32, Access::read};
  CHECK_THROWS_AS(backend->run({"fill", {&read, 1}, bytes}), ValueError);
  CHECK_THROWS_AS(backend->allocate_block(backend->info().max_block_bytes + 1), Error);
  CHECK_THROWS_AS(backend->free_block(99), ValueError);
  // A specialization that the shader does not declare is an error, as it is not compiled ahead of
  // time either.
  const Binding reduced[] = {{range, DType::f32, Access::read}, {range, DType::i32, Access::write}};
  const kernels::ReduceParams one{.outer = 1, .count = 1, .inner = 1};
  const uint32_t least = 3;
  CHECK_THROWS_WITH_AS(
      backend->run(
          {"argreduce", reduced, std::as_bytes(std::span(&one, 1)), {1, 1, 1}, {&least, 1}}),
      doctest::Contains("got 'MIN=3"), ValueError);
}

TEST_CASE("vulkan: blocks are reused after free") {
  auto backend = open();
  const uint32_t a = backend->allocate_block(100), b = backend->allocate_block(100);
  CHECK(a != b);
  backend->free_block(a);
  CHECK(backend->allocate_block(5000) == a);
}

TEST_CASE("vulkan: the validation layer has nothing to say") {
  if (!has_addresses()) return;
  Env env("REWIND_VALIDATE", "1");
  std::unique_ptr<Backend> backend;
  try {
    backend = open();
  } catch (const DeviceError& e) {
    MESSAGE("skipped: ", e.what());
    return;
  }
  check_transfers(*backend);
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::u8})
    check_fill(*backend, dtype, 3, 5000);
  const DType narrow = has_halves_by_address() ? DType::f16 : DType::f32;
  const auto check_other = [&] {
    auto other = open();
    check_transfers(*other);
    check_fill(*other, narrow, 3, 5000);
  };
  for (const char* word : {"push-descriptors", "unified-memory", "f16-storage"}) {
    const Without lesser(word);
    check_other();
  }
  for (const auto& [name, value] :
       {std::pair("REWIND_LIMITS", "range:16"), {"REWIND_PROFILE", "1"}}) {
    const Env env(name, value);
    check_other();
  }
  backend.reset();
  CHECK(vulkan::validation_messages() == 0);
}
