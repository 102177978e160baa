// Memory outside of the arena: the host's, the driver's, and the bounded staging of uploads.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "backends/open.h"
#include "core/memory/device.h"
#include "core/memory/process_memory.h"
#include "shaders/params.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/kernel_runner.h"
#include "tests/fixtures/temporary_folder.h"

namespace {

using namespace rw;
using test::KernelRunner;

constexpr uint64_t kMiB = 1 << 20;

// A device with one heap, which reports what a test tells it.
class HeapBackend final : public Backend {
 public:
  HeapBackend(HeapUsage heap, bool is_cpu) : heap_(heap) {
    info_.memory_bytes = 1000;
    info_.is_cpu = is_cpu;
  }
  const DeviceInfo& info() const override { return info_; }
  std::vector<HeapUsage> heaps() const override { return {{500, 500, 499, true}, heap_}; }
  uint32_t allocate_block(uint64_t) override { return 0; }
  void free_block(uint32_t) override {}
  void write(BufferRange, const void*) override {}
  void read(BufferRange, void*) override {}
  void run(const KernelCall&) override {}
  void synchronize() override {}

 private:
  DeviceInfo info_;
  HeapUsage heap_;
};

// Computes sum += x, both dense f32.
void run_accumulate(KernelRunner& runner, const Binding& x, const Binding& sum) {
  kernels::AccumulateParams p{};
  p.n = static_cast<uint32_t>(x.range.size / 4);
  p.a = 1;
  runner.run("accumulate", {x, sum}, p, {}, {p.n / REWIND_FLAT, 1, 1});
}

// Places of marks in the device's memory: at the beginning, in the middle and at the end.
constexpr std::array<uint8_t, 3> mark = {5, 6, 7};
std::array<uint64_t, 3> mark_places(const Storage& storage) {
  return {0, storage.bytes() / 2, storage.bytes() - mark.size()};
}
std::shared_ptr<Storage> marked(Device& device, uint64_t bytes) {
  auto storage = device.allocate({static_cast<int64_t>(bytes)}, DType::u8);
  for (const uint64_t at : mark_places(*storage))
    device.write(*storage, at, mark.size(), mark.data());
  return storage;
}
void check_marks(const Storage& storage) {
  for (const uint64_t at : mark_places(storage)) {
    std::array<uint8_t, 3> there{};
    storage.device().read(storage, at, there.size(), there.data());
    CHECK(there == mark);
  }
}

// The growth must be less than the size of the values that move. They are large, since huge pages
// of the program itself come and go, up to 24 MiB of them.
constexpr uint64_t growth_unit = 4 * kMiB;
void check_peak(uint64_t before) {
  const uint64_t peak = host_memory().peak;
  INFO(peak << " where it was " << before);
#ifndef __SANITIZE_ADDRESS__  // it has memory of its own beside written bytes
  CHECK(peak < before + 24 * growth_unit);
#endif
}

}  // namespace

TEST_CASE("process memory: 64 MiB that are touched show up, and the peak stays until it is reset" *
          doctest::test_suite("host")) {
  const HostMemory before = host_memory();
  CHECK(before.current > kMiB);
  CHECK(before.peak >= before.current);
  // Memory from the system, since a heap may have as much that was touched before.
  const uint64_t bytes = before.peak - before.current + 64 * kMiB;
  void* large = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(large != MAP_FAILED);
  std::memset(large, 1, bytes);
  CHECK(host_memory().current >= before.current + 60 * kMiB);
  CHECK(static_cast<const char*>(large)[bytes / 2] == 1);
  munmap(large, bytes);
  const HostMemory after = host_memory();
  CHECK(after.peak >= before.peak + 60 * kMiB);
  CHECK(after.current < after.peak);
  REQUIRE(reset_host_peak());
  CHECK(host_memory().peak < after.peak - 60 * kMiB);
}

TEST_CASE("process memory: the driver's own is what the heap of the blocks holds besides them" *
          doctest::test_suite("host")) {
  const HeapUsage heap{1000, 900, 350, true};
  CHECK(driver_overhead(HeapBackend(heap, false), 300) == 50);
  CHECK(driver_overhead(HeapBackend(heap, false), 400) == 0);
  CHECK(!driver_overhead(HeapBackend(heap, true), 300));               // the whole machine's usage
  CHECK(!driver_overhead(HeapBackend({1000, 0, 0, true}, false), 0));  // the driver does not tell
  CHECK(!driver_overhead(HeapBackend({1000, 900, 350, false}, false), 0));
}

TEST_CASE("process memory: the Vulkan device tells its heaps") {
  const auto backend = open_backend("vulkan");
  const std::vector<HeapUsage> heaps = backend->heaps();
  CHECK(std::any_of(heaps.begin(), heaps.end(), [&](const HeapUsage& heap) {
    return heap.device_local && heap.size == backend->info().memory_bytes;
  }));
  for (const HeapUsage& heap : heaps) CHECK(heap.budget <= heap.size);
  const test::Without none("memory-budget");
  for (const HeapUsage& heap : open_backend("vulkan")->heaps()) {
    CHECK(heap.size > 0);
    CHECK(heap.budget == 0);
    CHECK(heap.usage == 0);
  }
}

TEST_CASE("process memory: values of the cpu come into one block without a second copy" *
          doctest::test_suite("host")) {
  const auto device = Device::create(open_backend("cpu"), 120 * growth_unit);
  {
    const auto first = marked(*device, 60 * growth_unit),
               second = marked(*device, 60 * growth_unit);
  }
  // Values lie in two blocks, with two holes that are too small.
  const auto a = marked(*device, 36 * growth_unit);
  auto b = marked(*device, 24 * growth_unit);
  const auto c = marked(*device, 36 * growth_unit);
  auto d = marked(*device, 24 * growth_unit);
  b = d = nullptr;
  REQUIRE(reset_host_peak());
  const uint64_t before = host_memory().peak;
  const auto large = marked(*device, 48 * growth_unit);
  CHECK(device->memory_report().moved == 72 * growth_unit);
  CHECK(device->memory_report().peak_reserved == 120 * growth_unit);
  check_peak(before);
  check_marks(*a);
  check_marks(*c);
}

TEST_CASE("process memory: a value that goes down by less than its size does so in pieces" *
          doctest::test_suite("host")) {
  const auto device = Device::create(open_backend("cpu"), 65 * growth_unit);
  { const auto all = marked(*device, 65 * growth_unit); }
  auto below = marked(*device, growth_unit / 2);
  const auto value = marked(*device, 64 * growth_unit);
  below = nullptr;
  REQUIRE(reset_host_peak());
  const uint64_t before = host_memory().peak;
  const auto above = marked(*device, growth_unit);
  CHECK(device->memory_report().moved == 64 * growth_unit);
  check_peak(before);
  check_marks(*value);
}

// On CPU drivers, the device's blocks are host memory; they are touched before the first look.
TEST_CASE("process memory: uploads of 1 GiB behind queued kernels need the staging ring only") {
  const test::Without staged("unified-memory");
  KernelRunner runner(open_backend("vulkan"));
  constexpr uint64_t kPiece = 16 * kMiB, kPieces = 64, kRing = 4 * 8 * kMiB;
  constexpr size_t kCount = kPiece / sizeof(float);
  const Binding x = runner.allocate(kCount), sum = runner.allocate(kCount);
  std::vector<float> piece(kCount);
  const auto upload = [&](uint64_t i) {
    piece[0] = piece[kCount / 2] = piece[kCount - 1] = static_cast<float>(i);
    runner.backend().write(x.range, piece.data());
  };
  runner.backend().write(sum.range, piece.data());
  upload(0);
  run_accumulate(runner, x, sum);
  runner.backend().synchronize();

  const uint64_t before = host_memory().current;
  uint64_t most = before;
  float expected = 0;
  for (uint64_t i = 1; i <= kPieces; ++i) {
    upload(i);
    run_accumulate(runner, x, sum);
    expected += static_cast<float>(i);
    most = std::max(most, host_memory().current);
  }
#ifndef __SANITIZE_ADDRESS__  // it keeps freed memory for a while
  CHECK(most - before < kRing + 16 * kMiB);
#endif
  const std::vector<float> total = runner.download(sum);
  CHECK(total[0] == expected);
  CHECK(total[kCount / 2] == expected);
  CHECK(total[kCount - 1] == expected);
  CHECK(std::count(total.begin(), total.end(), 0.f) == static_cast<long>(kCount - 3));
}

TEST_CASE("process memory: limits of control groups, and of those around them" *
          doctest::test_suite("host")) {
  const TemporaryFolder root;
  const auto put = [&](const std::filesystem::path& file, const std::string& text) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  };
  const auto spare = [&] { return spare_host_bytes(root.path) / kMiB; };
  const uint64_t everything = spare();  // no file says anything
  put("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   65536 kB\n");
  CHECK(spare() == 56);  // 64, without an eighth
  // Version 2: the group around it has less, and 1 kMiB of what it takes are copies of files.
  put("proc/self/cgroup", "1:name=systemd:/x\n0::/outer/inner\n");
  put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  put("sys/fs/cgroup/outer/inner/memory.current", "4096\n");
  CHECK(spare() == 56);
  put("sys/fs/cgroup/outer/inner/memory.max", std::to_string(40 * kMiB));
  put("sys/fs/cgroup/outer/inner/memory.current", std::to_string(8 * kMiB));
  CHECK(spare() == 28);
  put("sys/fs/cgroup/outer/memory.max", std::to_string(24 * kMiB));
  put("sys/fs/cgroup/outer/memory.current", std::to_string(9 * kMiB));
  put("sys/fs/cgroup/outer/memory.stat",
      "anon 5\ninactive_file " + std::to_string(kMiB) + "\nactive_file 7\n");
  CHECK(spare() == 14);
  // Version 1, whose folder is elsewhere, and that of a container, which sees it as the top.
  put("proc/self/cgroup", "5:cpu,memory:/a\n4:memory_recursive:/b\n0::/\n");
  put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", std::to_string(32 * kMiB));
  put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", std::to_string(16 * kMiB));
  put("sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 0\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(spare() == 14);
  put("proc/self/cgroup", "5:memory:/elsewhere/b\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(8 * kMiB));
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(9 * kMiB));
  CHECK(spare() == 0);
  put("proc/self/cgroup", "nothing of this kind\n");
  CHECK(spare() == 56);
  std::filesystem::remove_all(root / "proc");
  CHECK(spare() == everything);
}
