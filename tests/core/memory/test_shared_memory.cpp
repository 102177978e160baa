// Tensors on memory of others, and addresses of values that others have.
#include <array>
#include <utility>

#include "core/tensor/primitives.h"
#include "core/tensor/quantize.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;

namespace {

// Floats of a program's own, which tell when the last tensor lets go of them.
struct OwnFloats {
  alignas(16) std::array<float, 8> values{1, -2, 3, -4, 5, -6, 7, -8};
  bool is_shared = false;

  std::shared_ptr<std::byte> memory(size_t first = 0) {
    is_shared = true;
    return {reinterpret_cast<std::byte*>(values.data() + first),
            [this](std::byte*) { is_shared = false; }};
  }
};

const float* floats_at(const std::shared_ptr<std::byte>& memory) {
  return reinterpret_cast<const float*>(memory.get());
}

}  // namespace

TEST_CASE("shared_memory: a tensor on memory of others sees and makes their writes") {
  for (const char* backend : {"reference", "cpu"}) {
    CAPTURE(backend);
    const auto device = Device::create(open_backend(backend));
    const DeviceScope scope(device);
    OwnFloats own;
    {
      const Tensor x = from_memory(own.memory(), {2, 4}, DType::f32);
      REQUIRE(x.defined());
      own.values[1] = 20;
      CHECK(x.to_vector()[1] == 20);
      copy_into(tensor({8, 7, 6, 5, 4, 3, 2, 1}, {2, 4}), x);
      CHECK(own.values[0] == 8);
      CHECK(relu(x).to_vector()[7] == 1);
      CHECK(floats_at(host_memory(x[1])) == own.values.data() + 4);
      CHECK(device->memory_report().live == 0);
      CHECK(own.is_shared);
    }
    CHECK(!own.is_shared);
    for (const uint64_t live : device->memory_report().live_by_purpose) CHECK(live == 0);
  }
}

TEST_CASE("shared_memory: ops and memory plans leave it where it is") {
  const auto device = Device::create(open_backend("reference"));
  const DeviceScope scope(device);
  OwnFloats own;
  Tensor x = from_memory(own.memory(), {8}, DType::f32);
  Storage& storage = *x.impl().storage;
  CHECK(!device->to_host(storage));
  device->swap_out(storage);
  keep_in_8_bits(x.impl().storage);
  CHECK(!storage.is_swapped_out());
  const Tensor y = relu(std::move(x));  // in place where nobody else has the memory
  CHECK(own.values[1] == -2);
  CHECK(y.to_vector() == std::vector<float>{1, 0, 3, 0, 5, 0, 7, 0});
  CHECK(!own.is_shared);
}

TEST_CASE("shared_memory: what cannot be shared is undefined") {
  const auto device = Device::create(open_backend("reference"));
  OwnFloats own;
  CHECK(!from_memory(own.memory(1), {4}, DType::f32, device).defined());
  CHECK(!from_memory(own.memory(), {0}, DType::f32, device).defined());
  const auto dry = Device::create(open_backend("dry:reference"));
  CHECK(!from_memory(own.memory(), {8}, DType::f32, dry).defined());
  CHECK(!host_memory(empty({8}, DType::f32, dry)));
  CHECK(!own.is_shared);
}

TEST_CASE("shared_memory: an address is that of the values, and keeps them") {
  const auto device = Device::create(open_backend("reference"));
  const DeviceScope scope(device);
  Tensor x = tensor({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 4});
  const std::vector<float> values = x.to_vector();
  std::shared_ptr<std::byte> memory = host_memory(x[2]);
  CHECK(floats_at(memory)[1] == values[9]);
  const Tensor y = relu(std::move(x));
  CHECK(floats_at(memory)[0] == values[8]);
  memory.reset();
  CHECK(device->memory_report().live == device->info().alignment);  // of y
}

TEST_CASE("shared_memory: within a limit a value gets memory of its own, and others move") {
  constexpr int64_t quarter = 4096;  // elements
  constexpr uint64_t bytes = quarter * 4;
  const auto device = Device::create(open_backend("reference"), 8 * bytes);
  const DeviceScope scope(device);
  std::vector<Tensor> all;
  for (float i = 0; i < 8; ++i) all.push_back(full({quarter}, i));
  const std::shared_ptr<std::byte> memory = host_memory(all[3]);
  CHECK(device->live() == 7 * bytes);
  CHECK(host_memory(all[3]) == memory);
  for (const size_t gone : {0, 2, 5, 7}) all[gone] = {};
  const Tensor large = full({4 * quarter}, 9);
  CHECK(device->moves() > 0);
  CHECK(floats_at(memory)[5] == 3);
  for (const size_t kept : {1, 3, 4, 6}) CHECK(all[kept].to_vector()[5] == float(kept));
}

TEST_CASE("shared_memory: parameters stay within the limit") {
  const auto device = Device::create(open_backend("reference"), 64 << 10);
  const DeviceScope scope(device);
  const PurposeScope purpose(Purpose::parameter);
  const Tensor w = full({1024}, 1);
  const std::shared_ptr<std::byte> memory = host_memory(w);
  CHECK(device->live() == 4096);
  device->set_memory_limit(32 << 10);
  CHECK(floats_at(memory)[7] == 1);
  CHECK(host_memory(w) == memory);
}

TEST_CASE("shared_memory: a limit that comes later does not move it") {
  constexpr uint64_t limit = 64 << 10;
  const auto device = Device::create(open_backend("reference"));
  const DeviceScope scope(device);
  const Tensor first = full({1024}, 1), x = full({1024}, 2);
  std::shared_ptr<std::byte> memory = host_memory(x);
  const uint64_t reserved = device->memory_report().reserved;
  device->set_memory_limit(limit);
  CHECK(device->memory_report().reserved == reserved);
  copy_into(first, x);
  CHECK(floats_at(memory)[1023] == 1);
  memory.reset();
  device->set_memory_limit(limit);
  CHECK(device->memory_report().reserved <= limit);
  CHECK(x.to_vector()[1023] == 1);
}
