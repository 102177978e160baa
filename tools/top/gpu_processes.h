// Processes that hold device memory, as Linux's DRM drivers tell it in /proc/PID/fdinfo. Drivers
// outside of DRM (NVIDIA's own) tell nothing; of other users' processes only root is told.
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

// An open device file.
struct DrmClient {
  std::string driver, pci_address;  // "amdgpu", "0000:03:00.0"
  std::string id;                   // files with the same one share their memory
  MemoryRegions regions;
};

// Nothing where the text is not that of a DRM device's file.
std::optional<DrmClient> parse_fdinfo(std::string_view text);

// The device's own memory where it has some, else all that it uses.
uint64_t device_bytes(const MemoryRegions& regions);

// One process on one device.
struct GpuProcess {
  int64_t pid = 0;
  std::string user, command;
  std::string driver, pci_address;
  MemoryRegions regions;
};

// Those with device memory, most first. What may not be read is left out. `proc`: for tests.
std::vector<GpuProcess> gpu_processes(const std::filesystem::path& proc = "/proc");

}  // namespace rw
