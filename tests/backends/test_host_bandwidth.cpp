// How fast copies between a device's memory and the host's are: measured by tune, kept with the
// device's profile, or assumed.
#include <doctest/doctest.h>

#include <cmath>

#include "backends/open.h"
#include "backends/tune.h"
#include "backends/vulkan/device/tuning_file.h"
#include "backends/vulkan/pipelines/profile.h"
#include "core/base/error.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/temporary_folder.h"

namespace rw::test {

namespace {

vulkan::Caps a_gpu() {
  vulkan::Caps caps;
  caps.name = caps.driver = "a GPU";
  caps.shared_bytes = 49152;
  caps.max_threads = 1024;
  caps.max_groups = {65535, 65535, 65535};
  caps.max_range = caps.max_block = caps.heap_bytes = uint64_t{1} << 30;
  return caps;
}

}  // namespace

TEST_CASE("host bandwidth: how fast copies to the host are" * doctest::test_suite("host")) {
  vulkan::Caps caps = a_gpu();
  caps.tuning.to_host = 12'000'000'000;
  caps.tuning.from_host = 13'000'000'000;
  caps.tuning.host_updates = 14'000'000'000;
  caps.unified_memory = true;
  CHECK(std::isinf(vulkan::to_info(caps).host_bandwidth.seconds_there_and_back()));
  caps.unified_memory = false;
  CHECK(vulkan::to_info(caps).host_bandwidth.to_host == 12e9);
  CHECK(vulkan::to_info(caps).host_bandwidth.from_host == 13e9);
  const vulkan::Caps known = vulkan::parse_caps(vulkan::to_json(caps), "a file");
  CHECK(vulkan::to_info(known).host_bandwidth.from_host == 13e9);
  CHECK(vulkan::to_info(known).host_bandwidth.updates == 14e9);
  caps.tuning = {};
  CHECK(vulkan::to_info(caps).host_bandwidth.seconds_there_and_back() == 2 / 25e9);
  CHECK(vulkan::to_info(caps).host_bandwidth.updates == 40e9);
}

TEST_CASE("host bandwidth: copies to the host are measured where the device has other memory") {
  const TemporaryFolder folder;
  const Env cache("REWIND_CACHE", folder.path.c_str());
  const Without on = with("tuning");
  const Without shared("unified-memory");
  const TuneOptions options{.device = "vulkan", .quick = true};
  try {
    tune(options, {}, [](const TunedClass&) {});
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  const std::unique_ptr<Backend> device = open_backend("vulkan");
  const vulkan::Tuning kept = vulkan::read_tuning(vulkan::parse_caps(device_profile("vulkan"), ""));
  CHECK(kept.to_host > 0);
  CHECK(kept.from_host > 0);
  CHECK(kept.host_updates > 100'000'000);  // bytes per second: slower than any memory
  CHECK(device->info().host_bandwidth.to_host == static_cast<double>(kept.to_host));
  CHECK(open_backend("dry:vulkan")->info().host_bandwidth.from_host ==
        static_cast<double>(kept.from_host));
}

}  // namespace rw::test
