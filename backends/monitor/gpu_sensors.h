// Linux's reports about a PCI device except for its memory: the hwmon files of its driver, and the
// files of amdgpu, i915 and xe.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace rw {

// Values that are not reported are absent, never 0.
struct GpuSensors {
  // 0 to 100, of the time rather than of the units.
  std::optional<double> busy_percent;
  std::optional<double> clock_mhz;                       // of the shaders, now
  std::optional<double> temperature_celsius;             // of the chip
  std::optional<double> power_watts, power_limit_watts;  // now, and the highest that is allowed
  std::optional<double> energy_joules;  // used so far; drivers that report no power count it
};

// `pci_address` is like "0000:03:00.0". `sys` is for tests.
GpuSensors read_gpu_sensors(const std::string& pci_address,
                            const std::filesystem::path& sys = "/sys");

// Returns the mean between two readings, or nothing if energy is not counted, or was reset.
std::optional<double> mean_power_watts(const GpuSensors& before, const GpuSensors& now,
                                       double seconds);

}  // namespace rw
