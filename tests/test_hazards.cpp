#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "rewind/backends/vulkan/hazards.h"

using rw::vulkan::HazardModel;
using rw::vulkan::HazardTracker;
using rw::vulkan::Use;

TEST_CASE("hazards: reads share, a write excludes") {
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

TEST_CASE("hazards: the tracker agrees with looking at every pair") {
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
      // Half of the time go on without the barrier: long lists that overlap themselves.
      if (conflict && below(2) == 0) {
        tracker.clear();
        model.clear();
      }
      tracker.add(step);
      model.add(step);
    }
  }
}
