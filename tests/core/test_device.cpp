// Devices: limits, out of memory, the report's figures.
#include <cmath>
#include <map>

#include "core/memory/work.h"
#include "ops/layout/indexing.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

// Gives blocks up to `total` bytes in all, each up to `largest`; computes nothing.
class Shelf : public Backend {
 public:
  Shelf(uint64_t total, uint64_t largest) : left_(total) {
    info_.name = "shelf";
    info_.max_block_bytes = largest;
  }
  const DeviceInfo& info() const override { return info_; }
  uint32_t allocate_block(uint64_t bytes) override {
    check<OutOfMemory>(bytes <= left_, "shelf", "no room for {} bytes", bytes);
    left_ -= bytes;
    sizes.push_back(bytes);
    return static_cast<uint32_t>(sizes.size() - 1);
  }
  void free_block(uint32_t block) override { left_ += sizes.at(block); }
  void write(BufferRange, const void*) override {}
  void read(BufferRange, void*) override {}
  void run(const KernelCall&) override {}
  void synchronize() override {}

  std::vector<uint64_t> sizes;  // of all blocks that it ever gave

 private:
  DeviceInfo info_;
  uint64_t left_;
};

std::shared_ptr<Storage> take(const std::shared_ptr<Device>& device, uint64_t bytes) {
  const PurposeScope purpose(Purpose::data);
  return device->allocate({static_cast<int64_t>(bytes)}, DType::u8);
}

// Takes a small training step with a segment, an f16 part and in-place ops, and returns the
// gradients.
std::vector<std::vector<float>> small_step() {
  Tensor w = leaf(256), v = leaf(256);
  Tensor x = reshape(w, {16, 16});
  {
    const auto segment = checkpoint();
    for (int i = 0; i < 3; ++i) x = tanh(matmul(std::move(x), reshape(v, {16, 16})) * 0.5f);
  }
  const Tensor loss = mean(square(cast(gelu(cast(x, DType::f16)), DType::f32)));
  loss.backward();
  return {w.grad().to_vector(), v.grad().to_vector()};
}

}  // namespace

TEST_CASE("device: blocks ahead of need have 1 GiB at most" * doctest::test_suite("host")) {
  constexpr uint64_t GiB = uint64_t{1} << 30;
  auto shelf = std::make_unique<Shelf>(64 * GiB, 64 * GiB);
  const auto& sizes = shelf->sizes;
  const auto device = Device::create(std::move(shelf));
  const auto large = take(device, 12 * GiB), small = take(device, 1);
  CHECK(sizes == std::vector<uint64_t>{12 * GiB, GiB});
}

TEST_CASE("memory report: lines are there where they have something to say" *
          doctest::test_suite("host")) {
  const auto has = [](const MemoryReport& report, const char* line) {
    return report.str().find(line) != std::string::npos;
  };
  MemoryReport plain, full;
  plain.peak = plain.naive = 1024;
  full = plain;
  full.naive = 2048, full.limit = 4096, full.host_peak = 512, full.moved = 256;
  full.driver_overhead = 128, full.followed_steps = 3;
  for (const char* line : {", limit 4.00 KiB", "host memory: peak 512 B", "moved to make room",
                           "driver's own memory", "2.0 times the peak", "offline plan: 3"}) {
    CAPTURE(line);
    CHECK(has(full, line));
    CHECK(!has(plain, line));
  }
  CHECK(recompute_share({}) == 0);
  CHECK(modelled_recompute_share({}) == 0);
}

TEST_CASE("dtypes: every name, and what is none" * doctest::test_suite("host")) {
  const std::map<DType, std::vector<const char*>> names = {
      {DType::f32, {"f32", "fp32", "float32", "float"}},
      {DType::f16, {"f16", "fp16", "float16", "half"}},
      {DType::bf16, {"bf16", "bfloat16"}},
      {DType::i32, {"i32", "int32", "int"}},
      {DType::u8, {"u8", "uint8", "bool"}}};
  for (const auto& [dtype, all] : names) {
    CHECK(name(dtype) == all[0]);
    for (const char* text : all) CHECK(parse_dtype(text) == dtype);
  }
  for (const char* text : {"", "f64", "F32", "i64"}) CHECK_THROWS_AS(parse_dtype(text), ValueError);
}

TEST_CASE("memory sizes: parsing and printing" * doctest::test_suite("host")) {
  CHECK(parse_bytes("1000") == 1000);
  CHECK(parse_bytes("512B") == 512);
  CHECK(parse_bytes("512M") == uint64_t{512} << 20);
  CHECK(parse_bytes("8GiB") == uint64_t{8} << 30);
  CHECK(parse_bytes("8 gib") == uint64_t{8} << 30);
  CHECK(parse_bytes("1.5k") == 1536);
  CHECK(parse_bytes("2GB") == 2000000000);
  for (const char* bad : {"", "GiB", "-1", "1X", "1GiBs", "nan", "1e30", "1 2"}) {
    INFO(std::string(bad));
    CHECK_THROWS_AS(parse_bytes(bad), ValueError);
  }
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(uint64_t{3} << 40) == "3.00 TiB");
  CHECK(parse_bytes(format_bytes(uint64_t{7} << 30)) == uint64_t{7} << 30);
}

TEST_CASE("device: blocks grow with use, and shrink to what fits" * doctest::test_suite("host")) {
  constexpr uint64_t MiB = 1 << 20;
  auto shelf = std::make_unique<Shelf>(100 * MiB, 64 * MiB);
  const auto& sizes = shelf->sizes;
  const auto device = Device::create(std::move(shelf));
  auto first = take(device, 100);
  CHECK(sizes == std::vector<uint64_t>{16 * MiB});
  const auto large = take(device, 40 * MiB);
  CHECK(sizes.back() == 40 * MiB);
  const auto second = take(device, 17 * MiB);
  CHECK(device->memory_report().reserved <= 100 * MiB);
  CHECK(contains(message_of<OutOfMemory>([&] { take(device, 65 * MiB); }),
                 "largest block of 'shelf' is 64.00 MiB"));
  CHECK(contains(message_of<OutOfMemory>([&] { take(device, 60 * MiB); }),
                 "'shelf' gave no more memory"));
  first.reset();  // its block is given back to make room
  const auto third = take(device, 30 * MiB);
  CHECK(device->memory_report().reserved <= 100 * MiB);
}

TEST_CASE("device: blocks of what lasts are full before there is another" *
          doctest::test_suite("host")) {
  const auto device = Device::create(open_backend("dry:reference"));
  const PurposeScope purpose(Purpose::parameter);
  std::vector<std::shared_ptr<Storage>> values;
  for (int i = 0; i < 200; ++i) {
    values.push_back(device->allocate({147456}, DType::u8));
    const MemoryReport report = device->memory_report();
    INFO(i << ": " << report.live << " of " << report.reserved);
    CHECK(report.reserved - report.live < std::max(report.reserved / 16, uint64_t{64} << 10));
  }
}

TEST_CASE("device: blocks stay small where the device's largest is small" *
          doctest::test_suite("host")) {
  auto shelf = std::make_unique<Shelf>(1 << 20, 1 << 16);
  const auto& sizes = shelf->sizes;
  const auto device = Device::create(std::move(shelf));
  const auto first = take(device, 100), second = take(device, 1 << 16);
  for (const uint64_t size : sizes) CHECK(size <= 1 << 16);
}

TEST_CASE("device: out of memory explains itself and leaves the device usable" *
          doctest::test_suite("host")) {
  constexpr uint64_t limit = 64 << 10;
  const auto device = Device::create(open_backend("reference"), limit);
  set_default_device(device);
  {
    const PurposeScope purpose(Purpose::parameter);
    const Tensor w = ones({100, 100});
    const Tensor one = ones({64}), small = exp(one);
    const std::string message = message_of<OutOfMemory>([&] { exp(w); });
    CHECK(contains(message, "[exp] needs 39.06 KiB more"));
    CHECK(contains(message, "the memory limit is 64.00 KiB"));
    CHECK(contains(message, "39.06 KiB  parameters from"));
    CHECK(contains(message, "256 B  parameters from exp"));
    CHECK(small.to_vector()[0] == doctest::Approx(std::exp(1.0)));
  }
  CHECK(device->memory_report().live == 0);
  CHECK(ones({128, 127}).numel() == 16256);  // nearly the whole limit in one piece
  CHECK(device->memory_report().peak_reserved <= limit);
}

TEST_CASE("device: a step under any memory limit succeeds or stops cleanly" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const auto expected = small_step();
  const uint64_t peak = default_device()->memory_report().peak;
  uint64_t least = 0;
  for (uint64_t limit = 256; limit <= 2 * peak; limit += 256) {
    INFO("limit " << limit);
    const auto device = Device::create(open_backend("reference"), limit);
    set_default_device(device);
    try {
      const auto gradients = small_step();
      REQUIRE(gradients == expected);
      if (!least) least = limit;
    } catch (const OutOfMemory& e) {
      REQUIRE(contains(e.what(), "memory limit"));
    }
    REQUIRE(Tape::current()->stats().records == 0);
    REQUIRE(device->memory_report().live == 0);
    REQUIRE(device->memory_report().peak_reserved <= limit);
    device->trim();
    REQUIRE(device->memory_report().reserved == 0);
  }
  CHECK(least >= peak);
  CHECK(least <= peak + peak / 8);  // the rest is fragmentation
}

TEST_CASE_FIXTURE(CpuDevice,
                  "device: the report counts what is there" * doctest::test_suite("host")) {
  constexpr int64_t n = 1000;  // 4000 bytes, 4096 in the arena
  const auto at = [](const MemoryReport& r, Purpose p) {
    return r.live_by_purpose[static_cast<size_t>(p)];
  };
  {
    Tensor w;
    {
      const PurposeScope purpose(Purpose::parameter);
      w = ones({n});
    }
    const Tensor half = ones({n}, DType::f16);
    MemoryReport r = device->memory_report();
    CHECK(at(r, Purpose::parameter) == 4000);
    CHECK(at(r, Purpose::activation) == 2000);
    CHECK(r.live == 4096 + 2048);
    CHECK(r.peak == r.live);
    CHECK(r.padding_at_peak == 96 + 48);
    CHECK(r.reserved >= r.live);
    device->end_step();
    for (int i = 0; i < 10; ++i) exp(w);
    device->end_step();
    r = device->memory_report();
    CHECK(r.naive == 4096 + 2048 + 10 * 4096);
    CHECK(r.peak == 2 * 4096 + 2048);
    for (int i = 0; i < 20; ++i) exp(w);  // begins a longer step that has not ended yet
    CHECK(device->memory_report().naive == 4096 + 2048 + 20 * 4096);
    device->reset_peak();
    CHECK(device->memory_report().peak == 4096 + 2048);
    CHECK(contains(device->memory_report().str(), "parameters"));
    CHECK(contains(device->memory_report().json(), "\"peak\": 6144"));
    w.set_requires_grad();
    sum(w * 2.0f).backward();
    CHECK(at(device->memory_report(), Purpose::gradient) == 4000);
  }
  CHECK(device->memory_report().live == 0);
  for (const uint64_t bytes : device->memory_report().live_by_purpose) CHECK(bytes == 0);
  device->trim();
  CHECK(device->memory_report().reserved == 0);
}

TEST_CASE("device: what a storage holds waits in host memory, and kernels bring it back") {
  on_each_device([] {
    Device& device = *default_device();
    Tensor w = leaf(4096);
    const std::vector<float> values = w.to_vector();
    Tensor x = w * 2.0f;
    Tensor loss = sum(x * x);
    const uint64_t live = device.live(), host = device.memory_report().host_live;
    Storage& storage = *x.impl().storage;
    const uint32_t version = storage.version();
    REQUIRE(device.to_host(storage));
    CHECK(device.to_host(storage));  // it is there already
    CHECK(storage.is_swapped_out());
    CHECK(device.live() <= live - x.bytes());
    CHECK(device.memory_report().host_live >= host + x.bytes());
    // Reads and writes find the value on the host; a kernel brings it back, by any view.
    CHECK(x.to_vector()[5] == 2 * values[5]);
    CHECK(storage.is_on_host());
    CHECK((slice(x, 0, 8, 12) + 0.0f).to_vector()[0] == 2 * values[8]);
    CHECK(!storage.is_swapped_out());
    CHECK(device.memory_report().host_live == host);
    CHECK(storage.version() == version);
    // Backward does, too, and saved values are unchanged.
    device.to_host(storage);
    loss.backward();
    CHECK(w.grad().to_vector()[7] == 8 * values[7]);
    device.to_host(storage);
    x.copy_(zeros({4096}));
    CHECK(x.to_vector() == std::vector<float>(4096));
    // A value that dies there gives its memory back; a young and large one goes by itself.
    device.to_host(storage);
    loss = {};
    x = {};
    CHECK(device.memory_report().host_live == host);
    const Tensor old = w * 1.0f;
    const uint64_t age = Storage::newest();
    const Tensor young = w * 3.0f, small = slice(w, 0, 0, 4) * 3.0f;
    device.activations_to_host(age, 1024);
    CHECK(!old.impl().storage->is_swapped_out());
    CHECK(young.impl().storage->is_on_host());
    CHECK(!small.impl().storage->is_swapped_out());
    CHECK((young - w * 3.0f).to_vector() == std::vector<float>(4096));
  });
}

TEST_CASE("device: ops are queued, not submitted one by one") {
  std::unique_ptr<Backend> backend;
  try {
    backend = open_backend("vulkan");
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  const auto device = set_default_device(std::move(backend));
  const Tensor x = leaf(256);
  Tensor y = x * 1.0f;
  for (int i = 0; i < 100; ++i) y = y + 0.5f;
  y.to_vector();
  const BackendStats before = device->backend().stats();
  for (int i = 0; i < 100; ++i) y = y + 0.5f;
  sum(y).backward();
  const BackendStats after = device->backend().stats();
  CHECK(after.dispatches - before.dispatches >= 201);
  if (!device->info().is_cpu) CHECK(after.submits - before.submits < 20);
  CHECK(x.grad().to_vector()[0] == 1);
}

}  // namespace rw::test
