// Drivers that break their promises, and their compiled kernels on disk.
#include <doctest/doctest.h>

#include <cstdlib>

#include "backends/open.h"
#include "core/base/error.h"
#include "core/files/cache.h"
#include "ops/ops.h"
#include "tests/backends/faulty_driver.h"
#include "tests/fixtures/child_case.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/snapshot_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using test::bytes_of;
using test::Env;
using test::FaultyDriver;
using test::with;
using test::Without;
namespace fs = std::filesystem;

namespace {

// Returns the folder's only file of compiled kernels.
fs::path only_file(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (!entry.path().filename().string().starts_with("pacing-")) files.push_back(entry.path());
  REQUIRE(files.size() == 1);
  return files[0];
}

// Opens the device, computes, and closes it, which writes the cache.
void use_device() {
  const auto before = exchange_default_device(nullptr);
  set_default_device(open_backend("vulkan"));
  CHECK(sum(full({1000}, 2)).item() == 2000);
  exchange_default_device(before);
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

TEST_CASE("vulkan: memory that the driver maps nowhere is an error") {
  const Without staging("unified-memory");  // staging memory is mapped on any device
  auto backend = open_backend("vulkan");
  const BufferRange range{backend->allocate_block(4096), 0, 4096};
  const std::vector<std::byte> bytes(4096, std::byte{7});
  std::vector<std::byte> back(4096);
  {
    const FaultyDriver now({.maps_nothing = true});
    CHECK_THROWS_AS(backend->write(range, bytes.data()), OutOfMemory);
    CHECK_THROWS_AS(backend->read(range, back.data()), OutOfMemory);
  }
  backend->write(range, bytes.data());  // it recovers when there is memory again
  backend->read(range, back.data());
  CHECK(back == bytes);
}

// No driver here needs the barrier, and no validation layer asks for it.
TEST_CASE("vulkan: every submit ends with a barrier that shows the host what was written") {
  const FaultyDriver watched(test::DriverFaults{});
  use_device();
  CHECK(FaultyDriver::faults().submits > 0);
  CHECK(FaultyDriver::faults().hidden_submits == 0);
}

// The memory types of a GPU: its own memory, memory of the host, a window of 64 KiB, and memory
// that the host reads fast.
constexpr uint32_t kLocal = 0, kHost = 1, kWindow = 2, kCached = 3;
test::DriverFaults gpu_memory() {
  return {.types = {{0x1, 0}, {0x6, 1}, {0x7, 2}, {0xe, 1}},
          .heaps = {uint64_t{8} << 30, uint64_t{16} << 30, uint64_t{256} << 20}};
}

// Writes and reads back through staging memory.
void check_staged_transfers() {
  auto backend = open_backend("vulkan");
  const BufferRange range{backend->allocate_block(40000), 0, 40000};
  std::vector<std::byte> bytes(40000), back(40000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  backend->write(range, bytes.data());
  backend->read(range, back.data());
  CHECK(back == bytes);
}

TEST_CASE("vulkan: memory types in order, the next where one is full") {
  const Without staging("unified-memory");
  const Without trusts("self-check");
  const Without budget("memory-budget");
  using Types = std::vector<uint32_t>;
  {
    const FaultyDriver driver(gpu_memory());
    check_staged_transfers();
    CHECK(driver.faults().allocated == Types{kLocal, kWindow, kCached});
  }
  test::DriverFaults full = gpu_memory();
  full.full = {false, false, true};
  {
    const FaultyDriver driver(full);  // the window
    check_staged_transfers();
    CHECK(driver.faults().allocated == Types{kLocal, kHost, kCached});
  }
  full.full = {true, false, false};
  {
    const FaultyDriver driver(full);  // its own memory, but not the window
    check_staged_transfers();
    CHECK(driver.faults().allocated == Types{kWindow, kWindow, kCached});
  }
  full.full = {true, false, true};
  const FaultyDriver driver(full);
  auto backend = open_backend("vulkan");
  const std::string error = test::message_of<Error>([&] { backend->allocate_block(40000); });
  CHECK(test::contains(error, "40000 bytes"));
  CHECK(test::contains(error, "VK_ERROR_OUT_OF_DEVICE_MEMORY of memory type 0 (heap 8.00 GiB)"));
  CHECK(test::contains(error, "of memory type 2 (heap 0.25 GiB)"));
}

TEST_CASE("vulkan: mapped memory that is slow to read is read through memory that is not") {
  const Without trusts("self-check");
  const Without unified = with("unified-memory");
  if (list_devices()[0].type == "discrete GPU") return;  // which has memory of its own
  test::DriverFaults slow;
  slow.types = {{0x7, 0}, {0xe, 0}};
  slow.heaps = {uint64_t{8} << 30};
  const FaultyDriver driver(slow);
  check_staged_transfers();
  CHECK(driver.faults().allocated == std::vector<uint32_t>{0, 1});
}

TEST_CASE("vulkan: the driver's budget bounds new blocks") {
  const Without trusts("self-check");
  test::DriverFaults little;
  little.budget = 64 << 20;
  const FaultyDriver driver(little);
  {
    auto backend = open_backend("vulkan");
    const uint32_t block = backend->allocate_block(48 << 20);
    const std::string error = test::message_of<Error>([&] { backend->allocate_block(48 << 20); });
    CHECK(test::contains(error, "beyond the driver's budget"));
    CHECK(test::contains(error, "0.05 GiB in use by this process, budget 0.06 GiB"));
    backend->free_block(block);
    backend->allocate_block(48 << 20);
  }
  {
    // A program sees the error of its op, with the driver's reason.
    const DeviceScope scope(Device::create(open_backend("vulkan")));
    const Tensor x = full({8 << 20}, 1);
    const std::string error = test::message_of<Error>([&] { full({12 << 20}, 1); });
    CHECK(test::contains(error, "beyond the driver's budget"));
    CHECK(test::contains(error, "Largest tensors"));
    CHECK(sum(x).item() == 8 << 20);
  }
  const Without ignored("memory-budget");
  open_backend("vulkan")->allocate_block(96 << 20);
}

TEST_CASE("vulkan: a lost device is one clear error, and training goes on from the disk") {
  const Without trusts("self-check");
  const auto device = [] { return Device::create(open_backend("vulkan")); };
  std::vector<std::pair<std::string, std::vector<uint32_t>>> expected;
  const auto calls_of = [&](const std::string& function) {
    const FaultyDriver driver({.lost_in = function, .lost_at = INT64_MAX});
    const DeviceScope scope(device());
    test::Run run(DType::f32);
    for (int i = 0; i < 8; ++i) run.step();
    expected = run.bits();
    return driver.faults().calls;
  };
  for (const std::string function : {"vkQueueSubmit", "vkWaitSemaphores",
                                     "vkGetSemaphoreCounterValue", "vkGetQueryPoolResults"}) {
    const auto calls = static_cast<double>(calls_of(function));
    REQUIRE(calls > 0);
    for (const double share : {0.0, 0.3, 0.6, 0.95}) {
      const auto call = static_cast<int64_t>(share * calls);
      CAPTURE(function);
      CAPTURE(call);
      const TemporaryFolder folder;
      SnapshotDirectory snapshots(folder.path, 2);
      {
        const FaultyDriver driver({.lost_in = function, .lost_at = call});
        const DeviceScope scope(device());
        std::string error, again;
        try {
          test::Run run(DType::f32);
          for (int i = 0; i < 8; ++i) {
            run.step();
            if (i % 2) snapshots.save(run.state(), run.position);
          }
          // The division of work into submits depends on time.
          for (int i = 0; i < 10000; ++i) sum(full({8}, 1)).item();
        } catch (const DeviceError& e) {
          error = e.what();
        }
        CHECK(test::contains(error, "VK_ERROR_DEVICE_LOST; the device is lost, open it anew"));
        again = test::message_of<Error>([] { sum(full({8}, 1)).item(); });
        CHECK(again == error);
      }
      const DeviceScope scope(device());
      test::Run run(DType::f32);
      if (const auto loaded = snapshots.load_latest(run.state())) {
        CHECK(loaded->damaged.empty());
        run.position = loaded->position;
      }
      while (run.position.step < 8) run.step();
      CHECK(run.bits() == expected);
    }
  }
  const FaultyDriver driver({.lost_in = "vkCreateDevice", .lost_at = 0});
  CHECK(test::contains(test::message_of<Error>([] { open_backend("vulkan"); }),
                       "vkCreateDevice failed"));
}

// A device that never ends leaves its driver's threads behind, and the driver's exit handlers may
// fail on them. So this process ends at once.
TEST_CASE("vulkan: kernels that do not end" * doctest::skip()) {
  const Without trusts("self-check");
  const FaultyDriver driver({.hangs = true});
  bool holds = true;
  const auto expect = [&](bool condition, const std::string& error) {
    CHECK_MESSAGE(condition, error);
    holds = holds && condition;
  };
  {
    const DeviceScope scope(Device::create(open_backend("vulkan")));
    const std::string error = test::message_of<DeviceError>([] { sum(full({8}, 1)).item(); });
    expect(test::contains(error, "no kernel ended within"), error);
    expect(test::contains(error, "the device is lost, open it anew. Last kernels, newest first: "),
           error);
    expect(test::contains(error, "reduce"), error);
    expect(test::message_of<DeviceError>([] { sum(full({8}, 1)).item(); }) == error, "another");
    expect(!test::message_of<DeviceError>([] { default_device()->mark()(); }).empty(), "a mark");
  }
  expect(driver.faults().frees == 0, "memory is freed");
  std::_Exit(holds ? 0 : 1);
}

TEST_CASE("vulkan: kernels that do not end are an error, and their memory is left alone") {
  CHECK(test::status_of_case("vulkan: kernels that do not end") == 0);
}

TEST_CASE("vulkan: a cache of compiled kernels that is broken is made again") {
  const TemporaryFolder folder;
  const Env cache("REWIND_CACHE", folder.path.c_str());
  const Without trusts("self-check");
  use_device();
  const fs::path file = only_file(folder.path);
  CHECK(file.filename().string().starts_with("pipelines-"));
  const std::string whole = bytes_of(file);
  const auto damaged = [&](auto&& damage) {
    std::string text = whole;
    damage(text);
    std::ofstream(file, std::ios::binary) << text;
    CHECK(read_cache(file.filename().string()).empty());
    use_device();
    CHECK(!read_cache(file.filename().string()).empty());
  };
  damaged([](std::string& text) { text.resize(text.size() / 2); });
  damaged([](std::string& text) { text.resize(5); });
  damaged([](std::string& text) { text.clear(); });
  damaged([](std::string& text) { text.back() ^= 1; });
  damaged([](std::string& text) { text[0] ^= 1; });
  damaged([](std::string& text) { text += "more"; });
  fs::remove(file);
  fs::create_directory(file);  // there is no file, and nothing can take its place
  CHECK(read_cache(file.filename().string()).empty());
  use_device();
  CHECK(only_file(folder.path) == file);
}

TEST_CASE("vulkan: two devices that are open at once keep the kernels of both") {
  const Without trusts("self-check");
  const FaultyDriver driver({.keeps_pipelines = true});
  const auto bytes_kept = [](bool first, bool second) {
    const TemporaryFolder folder;
    const Env cache("REWIND_CACHE", folder.path.c_str());
    {
      const auto a = Device::create(open_backend("vulkan"));
      const auto b = Device::create(open_backend("vulkan"));
      const auto compute = [](const std::shared_ptr<Device>& device, auto&& op) {
        const DeviceScope scope(device);
        op(full({1000}, 2)).to_vector();
      };
      if (first) compute(a, [](const Tensor& x) { return sum(x); });
      if (second) compute(b, [](const Tensor& x) { return exp(x); });
    }
    std::vector<uint64_t> sizes = {0};
    for (const auto& entry : fs::directory_iterator(folder.path))
      if (entry.path().extension() == ".bin") sizes.push_back(entry.file_size());
    CHECK(sizes.size() == 2);
    return sizes.back();
  };
  const uint64_t none = bytes_kept(false, false), both = bytes_kept(true, true);
  const uint64_t first = bytes_kept(true, false), second = bytes_kept(false, true);
  CHECK(first > none);
  CHECK(second > none);
  CHECK(both - none == first - none + second - none);
}

TEST_CASE("cache: compiled kernels are never read from the current folder" *
          doctest::test_suite("host")) {
  const TemporaryFolder folder;
  {
    const Env own("REWIND_CACHE", folder.path.c_str());
    write_cache("kernels.bin", as_bytes("contents"));
    CHECK(read_cache("kernels.bin").size() == 8);
  }
  const fs::path before = fs::current_path();
  fs::current_path(folder.path);
  {
    const Env none("REWIND_CACHE", ""), no_xdg("XDG_CACHE_HOME", ""), no_home("HOME", "");
    CHECK(read_cache("kernels.bin").empty());
    write_cache("other.bin", as_bytes("contents"));
    // A folder of that name below the current one does not belong to the user either.
    fs::create_directories(folder.path / "here/rewind");
    fs::copy_file(folder.path / "kernels.bin", folder.path / "here/rewind/kernels.bin");
    const Env relative("XDG_CACHE_HOME", "here");
    CHECK(read_cache("kernels.bin").empty());
  }
  CHECK(!fs::exists(folder.path / "other.bin"));
  fs::current_path(before);
}
