#include "backends/monitor/gpu_sensors.h"

#include <initializer_list>

#include "backends/monitor/system_text.h"

namespace rw {

namespace {

namespace fs = std::filesystem;

constexpr double kMega = 1e6, kMilli = 1e-3, kMicro = 1e-6;

// Returns the number in the first of these files that has one, in units of `unit`.
std::optional<double> first_of(const fs::path& folder, std::initializer_list<const char*> names,
                               double unit = 1) {
  for (const char* name : names)
    if (const std::optional<double> value = read_number(folder / name)) return *value * unit;
  return {};
}

// Returns the first entry of `folder` that begins with `prefix`.
fs::path entry(const fs::path& folder, const std::string& prefix) {
  for (const fs::path& path : entries(folder))
    if (path.filename().string().starts_with(prefix)) return path;
  return folder / prefix;  // does not exist
}

// Returns the clock that the hardware has chosen, from i915 or xe. amdgpu reports its clocks by
// hwmon.
std::optional<double> intel_clock_mhz(const fs::path& device) {
  const fs::path card = entry(device / "drm", "card");
  const std::optional<double> i915 = first_of(card, {"gt/gt0/rps_act_freq_mhz", "gt_act_freq_mhz"});
  return i915 ? i915 : first_of(device, {"tile0/gt0/freq0/act_freq"});
}

}  // namespace

// Documentation/hwmon/sysfs-interface.rst defines the units of hwmon. Number 1 is the whole card,
// or the chip; where xe has sensors of the package alone, they have number 2. A limit of 0 is
// switched off.
GpuSensors read_gpu_sensors(const std::string& pci_address, const fs::path& sys) {
  if (pci_address.empty()) return {};
  const fs::path device = sys / "bus/pci/devices" / pci_address;
  const fs::path hwmon = entry(device / "hwmon", "hwmon");
  GpuSensors found;
  found.busy_percent = first_of(device, {"gpu_busy_percent"});
  found.clock_mhz = first_of(hwmon, {"freq1_input"}, 1 / kMega);
  if (!found.clock_mhz) found.clock_mhz = intel_clock_mhz(device);
  found.temperature_celsius = first_of(hwmon, {"temp1_input", "temp2_input"}, kMilli);
  found.power_watts = first_of(hwmon, {"power1_average", "power1_input"}, kMicro);
  found.power_limit_watts = first_of(hwmon, {"power1_cap", "power1_max", "power2_max"}, kMicro);
  if (found.power_limit_watts == 0) found.power_limit_watts.reset();
  found.energy_joules = first_of(hwmon, {"energy1_input", "energy2_input"}, kMicro);
  return found;
}

std::optional<double> mean_power_watts(const GpuSensors& before, const GpuSensors& now,
                                       double seconds) {
  if (!before.energy_joules || !now.energy_joules || seconds <= 0) return {};
  const double joules = *now.energy_joules - *before.energy_joules;
  if (joules < 0) return {};
  return joules / seconds;
}

}  // namespace rw
