// Processes that hold device memory, and how long engines worked for them, as Linux's DRM drivers
// report in /proc/PID/fdinfo (Documentation/gpu/drm-usage-stats.rst). Drivers outside DRM (NVIDIA's
// own, see nvml.h) report nothing; only root sees other users' processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

using MemoryRegions = std::map<std::string, uint64_t>;  // "vram", "gtt", "system0", ...: bytes

// The use of an engine ("gfx", "render", "rcs", ...) so far. Drivers count time, cycles, or both;
// cycles mean something only if their total is known.
struct EngineUse {
  std::optional<uint64_t> nanoseconds;   // the time that it was busy
  uint64_t cycles = 0;                   // the cycles that it was busy
  std::optional<uint64_t> total_cycles;  // the cycles in all
  uint64_t capacity = 1;                 // engines of this name
};
using EngineUses = std::map<std::string, EngineUse>;

// Shares of the time between two readings, in percent, by engine.
using EnginePercents = std::map<std::string, double>;
EnginePercents engine_percents(const EngineUses& before, const EngineUses& now, double seconds);
// Returns the percentage of the busiest engine, at most 100; nothing if there is none.
std::optional<double> busiest_percent(const EnginePercents& percents);

// An open device file.
struct DrmClient {
  std::string driver, pci_address;  // "amdgpu", "0000:03:00.0"
  std::string id;                   // files with the same one share their memory
  MemoryRegions regions;            // bytes that it holds in each
  EngineUses engines;               // so far
};

// Returns nothing if the text is not that of a DRM device's file.
std::optional<DrmClient> parse_fdinfo(std::string_view text);

// Returns the bytes in the device's own memory if it has some, else all that it uses.
uint64_t device_bytes(const MemoryRegions& regions);

// One process on one device.
struct GpuProcess {
  int64_t pid = 0;                     // of the process
  std::string user, command;           // the user, and the command that was started
  std::string driver, pci_address;     // as of a DrmClient
  MemoryRegions regions;               // empty: unknown
  EngineUses engines;                  // so far
  std::optional<double> busy_percent;  // known after two readings
};

// Adds the user and the command of a process, from its folder in /proc.
void describe(GpuProcess& process, const std::filesystem::path& proc = "/proc");

// Returns the processes with device memory, those with most first. Files that may not be read are
// left out. `proc` is for tests.
std::vector<GpuProcess> gpu_processes(const std::filesystem::path& proc = "/proc");

}  // namespace rw
