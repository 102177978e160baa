// The reports of Linux and NVIDIA's library about GPUs, read from recorded trees and a library of
// our own.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "backends/monitor/gpu_processes.h"
#include "backends/monitor/gpu_sensors.h"
#include "backends/monitor/nvml.h"
#include "tests/backends/monitor/recorded_gpus.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;

namespace {

struct RecordedGpus {
  TemporaryFolder folder;
  RecordedGpus() {
    for (std::string_view tree : {recorded_amdgpu, recorded_i915, recorded_xe, recorded_nouveau})
      put_tree(folder.path, tree);
  }
  GpuSensors sensors(const std::string& address) const {
    return read_gpu_sensors(address, folder / "sys");
  }
  GpuProcess process(int64_t pid) const {
    for (const GpuProcess& process : gpu_processes(folder / "proc"))
      if (process.pid == pid) return process;
    FAIL("no process " << pid);
    return {};
  }
};

}  // namespace

TEST_CASE("monitor: sensors of each driver, and nothing that it does not tell" *
          doctest::test_suite("host")) {
  const RecordedGpus gpus;
  const GpuSensors amd = gpus.sensors("0000:03:00.0");
  CHECK(amd.busy_percent == 87);
  CHECK(amd.clock_mhz == 2105);
  CHECK(amd.temperature_celsius == 54);
  CHECK(amd.power_watts == 142);
  CHECK(amd.power_limit_watts == 203);
  CHECK(!amd.energy_joules);

  const GpuSensors i915 = gpus.sensors("0000:04:00.0");
  CHECK(!i915.busy_percent);
  CHECK(i915.clock_mhz == 2400);
  CHECK(!i915.temperature_celsius);
  CHECK(!i915.power_watts);
  CHECK(!i915.power_limit_watts);  // 0: there is no limit
  CHECK(i915.energy_joules == doctest::Approx(123.456789));

  const GpuSensors xe = gpus.sensors("0000:05:00.0");
  CHECK(xe.clock_mhz == 1850);
  CHECK(xe.temperature_celsius == 48);
  CHECK(xe.power_limit_watts == 190);
  CHECK(xe.energy_joules == 5);

  const GpuSensors nouveau = gpus.sensors("0000:06:00.0");
  CHECK(!nouveau.busy_percent);
  CHECK(!nouveau.clock_mhz);
  CHECK(nouveau.temperature_celsius == 41);
  CHECK(nouveau.power_watts == 31.5);
  CHECK(nouveau.power_limit_watts == 225);

  for (const char* other : {"0000:07:00.0", ""}) {
    const GpuSensors none = gpus.sensors(other);
    CHECK((!none.busy_percent && !none.clock_mhz && !none.temperature_celsius));
    CHECK((!none.power_watts && !none.power_limit_watts && !none.energy_joules));
  }
  put(gpus.folder / "sys/bus/pci/devices/0000:03:00.0/gpu_busy_percent", "N/A\n");
  CHECK(!gpus.sensors("0000:03:00.0").busy_percent);
  put(gpus.folder / "sys/bus/pci/devices/0000:03:00.0/gpu_busy_percent", "0\n");
  CHECK(gpus.sensors("0000:03:00.0").busy_percent == 0);
}

TEST_CASE("monitor: power is energy over time" * doctest::test_suite("host")) {
  GpuSensors before, now;
  CHECK(!mean_power_watts(before, now, 1));
  before.energy_joules = 10;
  CHECK(!mean_power_watts(before, now, 1));
  now.energy_joules = 40;
  CHECK(mean_power_watts(before, now, 2) == 15);
  CHECK(!mean_power_watts(before, now, 0));
  CHECK(!mean_power_watts(now, before, 2));  // the counter began anew
}

TEST_CASE("monitor: engines of a process, summed over its files" * doctest::test_suite("host")) {
  const RecordedGpus gpus;
  const GpuProcess amd = gpus.process(4242);
  CHECK(amd.command == "train");
  REQUIRE(amd.engines.size() == 2);
  CHECK(amd.engines.at("gfx").nanoseconds == 2'000'000'500);
  CHECK(amd.engines.at("compute").nanoseconds == 5'000'000'000);
  const GpuProcess i915 = gpus.process(4243);
  CHECK(i915.engines.at("video").capacity == 2);
  CHECK(i915.engines.at("render").capacity == 1);
  const GpuProcess xe = gpus.process(4244);
  CHECK(xe.engines.at("rcs").cycles == 400);
  CHECK(xe.engines.at("rcs").total_cycles == 1001);
  CHECK(xe.engines.at("ccs").capacity == 4);
  CHECK(!xe.engines.at("rcs").nanoseconds);
  CHECK(device_bytes(xe.regions) == 9 << 20);
}

TEST_CASE("monitor: shares of engines between two looks" * doctest::test_suite("host")) {
  const EngineUses before = {{"time", {.nanoseconds = 100}},
                             {"two", {.nanoseconds = 0, .capacity = 2}},
                             {"cycles", {.nanoseconds = 0, .cycles = 10, .total_cycles = 1000}},
                             {"closed", {.nanoseconds = 50}},
                             {"no total", {.cycles = 5}},
                             {"both", {.nanoseconds = 0, .cycles = 5}},
                             {"still", {.cycles = 7, .total_cycles = 9}}};
  const EngineUses now = {{"time", {.nanoseconds = 500'000'100}},
                          {"two", {.nanoseconds = 500'000'000, .capacity = 2}},
                          {"cycles", {.nanoseconds = 1, .cycles = 260, .total_cycles = 2000}},
                          {"closed", {.nanoseconds = 40}},
                          {"new", {.nanoseconds = 1}},
                          {"no total", {.cycles = 50}},
                          {"both", {.nanoseconds = 1'000'000'000, .cycles = 500}},
                          {"still", {.cycles = 7, .total_cycles = 9}}};
  CHECK(engine_percents(before, now, 2) ==
        EnginePercents{{"both", 50}, {"cycles", 25}, {"time", 25}, {"two", 12.5}});
  CHECK(busiest_percent({{"a", 20}, {"b", 60}, {"c", 0}}) == 60);
  CHECK(busiest_percent({{"a", 120}}) == 100);
  CHECK(busiest_percent({{"a", 0}}) == 0);
  CHECK(!busiest_percent({}));
}

TEST_CASE("monitor: without NVIDIA's library nothing is told" * doctest::test_suite("host")) {
  const Nvml none("/nonexistent/libnvidia-ml.so.1");
  CHECK(!none.knows("0000:01:00.0"));
  CHECK(!none.sensors("0000:01:00.0").busy_percent);
  CHECK(none.processes("0000:01:00.0").empty());
}

TEST_CASE("monitor: NVIDIA's library, as fake_nvml.cpp has it" * doctest::test_suite("host")) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const Nvml nvml(self.parent_path() / "fake_nvml.so");
  REQUIRE(nvml.knows("0000:01:00.0"));
  CHECK(!nvml.knows("0000:02:00.0"));
  CHECK(!nvml.knows(""));
  CHECK(nvml.processes("0000:02:00.0").empty());
  const GpuSensors sensors = nvml.sensors("0000:01:00.0");
  CHECK(sensors.busy_percent == 93);
  CHECK(sensors.clock_mhz == 1980);
  CHECK(sensors.temperature_celsius == 61);
  CHECK(sensors.power_watts == 412.5);
  CHECK(!sensors.power_limit_watts);  // the library lacks the function
  const std::vector<GpuProcess> all = nvml.processes("0000:01:00.0");
  REQUIRE(all.size() == 2);
  CHECK(all[0].pid == 10);
  CHECK(all[0].driver == "nvidia");
  CHECK(all[0].pci_address == "0000:01:00.0");
  CHECK(device_bytes(all[0].regions) == 5 << 20);
  CHECK(all[0].busy_percent == 70);  // the newest sample
  CHECK(all[1].pid == 11);
  CHECK(all[1].regions.empty());
  CHECK(!all[1].busy_percent);
}
