#include <doctest/doctest.h>

#include <bit>
#include <random>
#include <vector>

#include "backends/open.h"
#include "backends/vulkan/commands/hazards.h"
#include "core/base/error.h"
#include "shaders/params.h"
#include "tests/fixtures/kernel_runner.h"

using rw::Access;
using rw::Binding;
using rw::vulkan::HazardModel;
using rw::vulkan::HazardTracker;
using rw::vulkan::Use;

TEST_SUITE_BEGIN("host");

TEST_CASE("hazards: reads share, a write excludes" * doctest::test_suite("host")) {
  HazardTracker tracker;
  auto add = [&](Use use) { tracker.add({&use, 1}); };
  auto conflicts = [&](Use use) { return tracker.conflicts({&use, 1}); };
  add({0, 0, 100, false});
  CHECK_FALSE(conflicts({0, 50, 60, false}));
  CHECK(conflicts({0, 99, 101, true}));
  CHECK_FALSE(conflicts({0, 100, 200, true}));
  CHECK_FALSE(conflicts({1, 0, 100, true}));
  add({0, 100, 200, true});
  CHECK(conflicts({0, 199, 200, false}));
  CHECK_FALSE(conflicts({0, 200, 201, true}));
  CHECK_FALSE(conflicts({0, 150, 150, true}));
  tracker.clear();
  CHECK_FALSE(conflicts({0, 0, 200, true}));
}

TEST_CASE("hazards: the tracker agrees with looking at every pair" * doctest::test_suite("host")) {
  std::mt19937 random(7);
  auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    HazardTracker tracker;
    HazardModel model;
    const uint32_t size = 20 + below(400), longest = 1 + below(40);
    for (int i = 0; i < 200; ++i) {
      std::vector<Use> step(1 + below(4));
      for (Use& use : step) {
        use.block = below(3);
        use.begin = below(size);
        use.end = use.begin + below(longest);
        use.writes = below(3) == 0;
      }
      const bool conflict = model.conflicts(step);
      REQUIRE(tracker.conflicts(step) == conflict);
      // Half of the time, the test continues without the barrier, which gives long lists that
      // overlap themselves.
      if (conflict && below(2) == 0) {
        tracker.clear();
        model.clear();
      }
      tracker.add(step);
      model.add(step);
    }
  }
}

// test_f64_gradients.cpp watches the bytes of bindings that kernels touch.
TEST_CASE("hazards: a kernel uses all bytes of its bindings, and reads whole words of them") {
  for (uint64_t size = 0; size <= 100; ++size)
    for (const Access access : {Access::read, Access::write, Access::read_write}) {
      const Use use = rw::vulkan::use_of(Binding{{3, 256, size}, rw::DType::u8, access});
      CHECK(use.block == 3);
      CHECK(use.begin == 256);
      CHECK(use.end >= 256 + size);
      CHECK(use.end < 256 + size + 16);
      CHECK(use.end % 16 == 0);
      CHECK(use.writes == (access != Access::read));
    }
  const Use copy = rw::vulkan::use_of({3, 20, 7}, true);
  CHECK(copy.begin == 20);
  CHECK(copy.end == 27);
  CHECK(copy.writes);
}

TEST_SUITE_END();

TEST_CASE("hazards: a copy of the last bytes that a kernel wrote waits for it") {
  std::unique_ptr<rw::Backend> backend;
  try {
    backend = rw::open_backend("vulkan");
  } catch (const rw::DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  rw::test::KernelRunner vulkan(std::move(backend));
  const Binding target = vulkan.allocate(64);
  for (uint32_t n = 1; n <= 9; ++n) {
    CAPTURE(n);
    const Binding y = vulkan.allocate(n);
    const auto barriers = [&] { return vulkan.backend().stats().barriers; };
    vulkan.backend().synchronize();
    const auto fill = [&](float value) {
      vulkan.run("fill", {y}, rw::kernels::FillParams{{}, n, std::bit_cast<uint32_t>(value)}, {},
                 {n, 1, 1});
    };
    fill(1);
    const uint64_t before = barriers();
    vulkan.backend().copy({y.range.block, 4 * uint64_t{n} - 4, 4}, {target.range.block, 4 * n, 4});
    CHECK(barriers() > before);  // read after write
    const uint64_t between = barriers();
    fill(2);
    CHECK(barriers() > between);  // write after read
    CHECK(vulkan.download(target)[n] == 1);
  }
}
