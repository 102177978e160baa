// The output of `top`, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "../../backends/listing.h"
#include "../../backends/monitor/gpu_processes.h"
#include "../../backends/monitor/gpu_sensors.h"

namespace rw {

struct NumberedDevice {
  size_t index;  // as in "vulkan:INDEX"
  DeviceListing device;
  GpuSensors sensors = {};
};

// The machine at one moment.
struct Snapshot {
  std::string time;  // "2026-01-31 12:00:00"
  double seconds;    // of a monotonic clock
  std::vector<NumberedDevice> devices;
  std::vector<GpuProcess> processes;
};

// Bytes that all processes use: the heap without what a new process may have. Nothing if the driver
// has no VK_EXT_memory_budget.
std::optional<uint64_t> bytes_in_use(const HeapUsage& heap);

// Adds the values that only two snapshots together tell: how busy the processes are, and the
// devices whose driver reports this per process only; and power, for drivers that count energy.
void add_rates(Snapshot& now, const Snapshot& before);

// Keeps the devices that `choice` means, as in "vulkan:CHOICE", and the processes on them.
void select_devices(Snapshot& snapshot, const std::string& choice);

// `colours` adds a terminal's escape sequences.
std::string to_text(const Snapshot& snapshot, bool colours = false);
nlohmann::json to_json(const Snapshot& snapshot);

}  // namespace rw
