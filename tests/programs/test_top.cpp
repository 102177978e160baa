// `rewind top`: processes with device memory, read from a made-up /proc, and the output.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include "backends/monitor/nvml.h"
#include "core/base/error.h"
#include "tests/backends/monitor/recorded_gpus.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/temporary_folder.h"
#include "tools/top/report.h"

namespace {

using namespace rw;
using test::contains;
namespace fs = std::filesystem;

constexpr const char* kAmd =
    "pos:\t0\nflags:\t02100002\nmnt_id:\t26\ndrm-driver:\tamdgpu\ndrm-client-id:\t11\n"
    "drm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t2048 KiB\ndrm-memory-gtt:\t512 KiB\n"
    "drm-total-vram:\t4 MiB\ndrm-resident-vram:\t3 MiB\ndrm-engine-gfx:\t123 ns\n";
constexpr const char* kIntel =
    "drm-driver:\txe\ndrm-client-id:\t7\ndrm-pdev:\t0000:00:02.0\ndrm-total-system0:\t4096\n"
    "drm-total-cycles-rcs:\t28257900\ndrm-cycles-rcs:\t123\ndrm-shared-system0:\t64 KiB\n";

DeviceListing device(const std::string& name, const std::string& pci_address) {
  DeviceListing d;
  d.info.name = name;
  d.info.driver = "radv Mesa 25.0";
  d.info.uuid = "00ff";
  d.type = "discrete GPU";
  d.pci_address = pci_address;
  d.heaps = {{8ull << 30, 6ull << 30, 1ull << 30, true}, {16ull << 30, 0, 0, false}};
  return d;
}

Snapshot snapshot() {
  Snapshot s{"2026-01-31 12:00:00", 100, {{0, device("Radeon", "0000:03:00.0")}}, {}};
  s.devices.push_back({1, device("Arc", "0000:04:00.0")});
  s.processes = {
      {42, "ada", "train --now", "amdgpu", "0000:03:00.0", {{"vram", 3 << 20}}, {}, {}},
      {43, "bob", std::string(300, 'x'), "virtio_gpu", "", {{"memory", 1 << 20}}, {}, {}}};
  return s;
}

}  // namespace

TEST_CASE("top: a DRM file tells its regions, what is resident first" *
          doctest::test_suite("host")) {
  const auto amd = parse_fdinfo(kAmd);
  REQUIRE(amd);
  CHECK(amd->driver == "amdgpu");
  CHECK(amd->pci_address == "0000:03:00.0");
  CHECK(amd->id == "11");
  CHECK(amd->regions == MemoryRegions{{"gtt", 512 << 10}, {"vram", 3 << 20}});
  CHECK(device_bytes(amd->regions) == 3 << 20);

  const auto intel = parse_fdinfo(kIntel);
  REQUIRE(intel);
  CHECK(intel->regions == MemoryRegions{{"system0", 4096}});
  CHECK(device_bytes(intel->regions) == 4096);

  CHECK(!parse_fdinfo(""));
  CHECK(!parse_fdinfo("pos:\t0\nflags:\t02\nmnt_id:\t15\n"));
  const auto odd = parse_fdinfo("drm-driver: x\ndrm-memory-a: lots\ndrm-memory-b:\nno colon\n:\n");
  REQUIRE(odd);
  CHECK(device_bytes(odd->regions) == 0);
}

TEST_CASE("top: processes of a made-up /proc" * doctest::test_suite("host")) {
  const TemporaryFolder temporary;
  const fs::path proc = temporary.path;
  put(proc / "100/fdinfo/0", "pos:\t0\n");
  put(proc / "100/fdinfo/5", kAmd);
  put(proc / "100/fdinfo/6", kAmd);  // the same client again
  put(proc / "100/fdinfo/7", kIntel);
  put(proc / "100/status", "Name:\tx\nUid:\t0\t0\t0\t0\n");
  put(proc / "100/cmdline", std::string("train\0--name\0a\x1b[2Jb\0", 20));
  put(proc / "200/fdinfo/3", std::string(kAmd) + "drm-resident-vram:\t9 MiB\n");
  put(proc / "200/comm", "worker\n");
  // Reading fails, as from a process that ends.
  fs::create_directories(proc / "200/cmdline");
  fs::create_directories(proc / "200/fdinfo/4");
  put(proc / "200/status", "Uid:\t4294900000\t1\n");
  put(proc / "300/fdinfo/3", "drm-driver:\tamdgpu\ndrm-client-id:\t1\ndrm-memory-vram:\t0\n");
  put(proc / "400/comm", "no fdinfo\n");
  put(proc / "self/fdinfo/3", kAmd);
  put(proc / "500/fdinfo/3", kAmd);
  fs::permissions(proc / "500/fdinfo/3", fs::perms::none);

  const std::vector<GpuProcess> all = gpu_processes(proc);
  REQUIRE(all.size() == (geteuid() == 0 ? 4 : 3));  // root may read the files of 500
  CHECK(all[0].pid == 200);
  CHECK(all[0].command == "worker");
  CHECK(all[0].user == "4294900000");
  CHECK(device_bytes(all[0].regions) == 9 << 20);
  CHECK(all[1].pid == 100);
  CHECK(all[1].user == "root");
  CHECK(all[1].command == "train --name a?[2Jb");
  CHECK(all[1].pci_address == "0000:03:00.0");
  CHECK(device_bytes(all[1].regions) == 3 << 20);
  CHECK(all.back().pid == 100);
  CHECK(all.back().pci_address == "0000:00:02.0");

  CHECK(gpu_processes(proc / "none").empty());
  gpu_processes();  // works on any machine
}

TEST_CASE("top: bytes in use are what a new process cannot have" * doctest::test_suite("host")) {
  CHECK(!bytes_in_use({100, 0, 0, true}));
  CHECK(bytes_in_use({100, 80, 10, true}) == 30);
  CHECK(bytes_in_use({100, 100, 0, true}) == 0);
  CHECK(bytes_in_use({100, 50, 70, true}) == 100);
  CHECK(bytes_in_use({100, 120, 0, true}) == 0);
}

TEST_CASE("top: text" * doctest::test_suite("host")) {
  const std::string text = to_text(snapshot());
  CHECK(contains(text, "vulkan:0  Radeon (discrete GPU)\n  driver  radv Mesa 25.0\n"));
  CHECK(contains(text,
                 "  heap 0  device-local     8.00 GiB  [########............]  37.5 %      "
                 "3.00 GiB in use, budget 6.00 GiB\n"));
  CHECK(contains(text, "  heap 1  host            16.00 GiB  usage and budget unknown\n"));
  CHECK(contains(text, "      42  ada        vulkan:0         3.00 MiB         train --now\n"));
  CHECK(contains(text, "      43  bob        virtio_gpu       1.00 MiB         xxx"));
  CHECK(!contains(text, std::string(101, 'x')));
  Snapshot idle = snapshot();
  idle.processes.clear();
  CHECK(!contains(to_text(idle), "PID"));
}

TEST_CASE("top: JSON" * doctest::test_suite("host")) {
  const nlohmann::json json = nlohmann::json::parse(to_json(snapshot()).dump());
  CHECK(json["time"] == "2026-01-31 12:00:00");
  REQUIRE(json["devices"].size() == 2);
  const nlohmann::json& radeon = json["devices"][0];
  CHECK(radeon["index"] == 0);
  CHECK(radeon["name"] == "Radeon");
  CHECK(radeon["type"] == "discrete GPU");
  CHECK(radeon["heaps"][0]["size"] == 8ull << 30);
  CHECK(radeon["heaps"][0]["device_local"] == true);
  CHECK(radeon["heaps"][0]["budget"] == 6ull << 30);
  CHECK(radeon["heaps"][0]["usage"] == 1ull << 30);
  CHECK(radeon["heaps"][0]["in_use"] == 3ull << 30);
  CHECK(radeon["heaps"][1]["budget"].is_null());
  CHECK(radeon["heaps"][1]["in_use"].is_null());
  REQUIRE(json["processes"].size() == 2);
  CHECK(json["processes"][0]["pid"] == 42);
  CHECK(json["processes"][0]["device"] == 0);
  CHECK(json["processes"][0]["bytes"] == 3 << 20);
  CHECK(json["processes"][0]["regions"]["vram"] == 3 << 20);
  CHECK(json["processes"][1]["device"].is_null());
}

TEST_CASE("top: what is known of a device stands in its line, coloured on a terminal" *
          doctest::test_suite("host")) {
  Snapshot s = snapshot();
  s.devices[0].sensors = {.busy_percent = 87,
                          .clock_mhz = 2105,
                          .temperature_celsius = 54.4,
                          .power_watts = 142,
                          .power_limit_watts = 203};
  s.devices[1].sensors = {.busy_percent = 0, .power_watts = 9.6};
  s.processes[0].busy_percent = 85.4;
  s.processes[1].regions.clear();
  const std::string text = to_text(s);
  CHECK(contains(text,
                 "vulkan:0  Radeon (discrete GPU) |  54 °C |  87 % | 2105 MHz | 142 / 203 W\n"));
  CHECK(contains(text, "vulkan:1  Arc (discrete GPU) |   0 % |  10 W\n"));
  CHECK(contains(text, "      42  ada        vulkan:0         3.00 MiB   85 %  train --now\n"));
  CHECK(contains(text, "      43  bob        virtio_gpu                        xxx"));
  CHECK(!contains(text, "\x1b"));
  CHECK(contains(to_text(s, true),
                 "vulkan:0  \x1b[36mRadeon\x1b[0m (discrete GPU) | "
                 "\x1b[31m 54 °C\x1b[0m | \x1b[32m 87 %\x1b[0m | "
                 "\x1b[33m2105 MHz\x1b[0m | \x1b[35m142 / 203 W\x1b[0m\n"));
  const nlohmann::json json = to_json(s);
  CHECK(json["devices"][0]["busy_percent"] == 87);
  CHECK(json["devices"][0]["clock_mhz"] == 2105);
  CHECK(json["devices"][0]["power_watts"] == 142);
  CHECK(json["devices"][0]["power_limit_watts"] == 203);
  CHECK(json["devices"][0]["temperature_celsius"] == 54.4);
  CHECK(json["devices"][1]["busy_percent"] == 0);
  CHECK(json["devices"][1]["temperature_celsius"].is_null());
  CHECK(json["processes"][0]["busy_percent"] == 85.4);
  CHECK(json["processes"][1]["busy_percent"].is_null());
  CHECK(json["processes"][1]["bytes"].is_null());
}

TEST_CASE("top: two looks tell what drivers count" * doctest::test_suite("host")) {
  Snapshot before = snapshot(), now = snapshot();
  now.seconds = before.seconds + 2;
  before.devices[1].sensors.energy_joules = 1000;
  now.devices[1].sensors.energy_joules = 1030;
  before.processes[0].engines = {{"gfx", {.nanoseconds = 500}}};
  now.processes[0].engines = {{"gfx", {.nanoseconds = 500 + 1'000'000'000}}};
  now.processes.push_back(now.processes[0]);  // another process on the same device
  now.processes.back().pid = 44;
  now.processes.back().engines = {{"gfx", {.nanoseconds = 400'000'000}},
                                  {"dma", {.nanoseconds = 1}}};
  before.processes.push_back(now.processes.back());
  before.processes.back().engines = {{"gfx", {.nanoseconds = 0}}, {"dma", {.nanoseconds = 1}}};
  add_rates(now, before);
  CHECK(now.processes[0].busy_percent == 50);
  CHECK(!now.processes[1].busy_percent);
  CHECK(now.processes[2].busy_percent == 20);
  CHECK(now.devices[0].sensors.busy_percent == 70);
  CHECK(!now.devices[0].sensors.power_watts);
  CHECK(!now.devices[1].sensors.busy_percent);
  CHECK(now.devices[1].sensors.power_watts == 15);
  // Values that the driver itself reports stay.
  now.devices[0].sensors.busy_percent = 99;
  now.devices[1].sensors.power_watts = 7;
  add_rates(now, before);
  CHECK(now.devices[0].sensors.busy_percent == 99);
  CHECK(now.devices[1].sensors.power_watts == 7);
}

TEST_CASE("top: one device and the processes on it" * doctest::test_suite("host")) {
  for (const char* choice : {"0", "RADEON", "uuid=00FF"}) {
    Snapshot s = snapshot();
    select_devices(s, choice);
    CHECK(s.devices.front().index == 0);
    REQUIRE(s.processes.size() == 1);
    CHECK(s.processes[0].pid == 42);
  }
  Snapshot second = snapshot();
  select_devices(second, "1");
  REQUIRE(second.devices.size() == 1);
  CHECK(second.devices[0].index == 1);
  CHECK(second.processes.empty());
  CHECK_THROWS_AS(select_devices(second, "none"), DeviceError);
  Snapshot all = snapshot();
  select_devices(all, "");
  CHECK(all.devices.size() == 2);
  CHECK(all.processes.size() == 2);
}

TEST_CASE("devices: a GPU that no Vulkan driver offers is told, and what to do" *
          doctest::test_suite("host")) {
  const TemporaryFolder dev;
  CHECK(unoffered_gpu(dev.path).empty());
  put(dev / "dri" / "card0", "");
  CHECK(unoffered_gpu(dev.path).empty());
  put(dev / "dri" / "renderD128", "");
  CHECK(unoffered_gpu(dev.path).find("/dri/renderD128), but no Vulkan driver") !=
        std::string::npos);
  put(dev / "nvidia0", "");
  const std::string nvidia = unoffered_gpu(dev.path);
  for (const char* part : {"/nvidia0), but no Vulkan driver", "VK_DRIVER_FILES", "libGLX_nvidia.so",
                           "libEGL_nvidia.so", "NVIDIA_DRIVER_CAPABILITIES"})
    CHECK(nvidia.find(part) != std::string::npos);
}
