#include "tools/top/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/memory/memory_report.h"

namespace rw {

namespace {

constexpr size_t kBarWidth = 20, kCommandWidth = 100;

std::string bar(double share) {
  const auto full = static_cast<size_t>(share * kBarWidth + 0.5);
  return '[' + std::string(full, '#') + std::string(kBarWidth - full, '.') + ']';
}

// At most kCommandWidth bytes, cut between characters of UTF-8.
std::string clip(const std::string& command) {
  size_t end = std::min(command.size(), kCommandWidth);
  while (end > 0 && end < command.size() && (command[end] & 0xC0) == 0x80) --end;
  return command.substr(0, end);
}

std::string heap_line(size_t number, const HeapUsage& heap) {
  const char* place = heap.device_local ? "device-local" : "host";
  const std::string head =
      fmt::format("  heap {}  {:<12} {:>12}  ", number, place, format_bytes(heap.size));
  const std::optional<uint64_t> used = bytes_in_use(heap);
  if (!used) return head + "usage and budget unknown\n";
  const double share = heap.size ? static_cast<double>(*used) / static_cast<double>(heap.size) : 0;
  return head + fmt::format("{} {:5.1f} %  {:>12} in use, budget {}\n", bar(share), 100 * share,
                            format_bytes(*used), format_bytes(heap.budget));
}

// The device that a process is on, if it is among those shown.
std::optional<size_t> device_index(const Snapshot& snapshot, const GpuProcess& process) {
  if (!process.pci_address.empty())
    for (const NumberedDevice& d : snapshot.devices)
      if (d.device.pci_address == process.pci_address) return d.index;
  return {};
}

// Colours of a terminal, like gpustat's.
enum class Colour { name = 36, hot = 31, busy = 32, clock = 33, power = 35 };

std::string coloured(const std::string& text, Colour colour, bool colours) {
  return colours ? fmt::format("\x1b[{}m{}\x1b[0m", static_cast<int>(colour), text) : text;
}

// Describes a device: "vulkan:0  Radeon (discrete GPU) |  54 °C |  87 % | 2105 MHz | 142 / 203 W".
std::string device_line(const NumberedDevice& numbered, bool colours) {
  const auto& [index, device, sensors] = numbered;
  std::string line = fmt::format("vulkan:{}  {} ({})", index,
                                 coloured(device.info.name, Colour::name, colours), device.type);
  const auto add = [&](const std::string& text, Colour colour) {
    line += " | " + coloured(text, colour, colours);
  };
  if (sensors.temperature_celsius)
    add(fmt::format("{:3.0f} °C", *sensors.temperature_celsius), Colour::hot);
  if (sensors.busy_percent) add(fmt::format("{:3.0f} %", *sensors.busy_percent), Colour::busy);
  if (sensors.clock_mhz) add(fmt::format("{:4.0f} MHz", *sensors.clock_mhz), Colour::clock);
  const std::string limit =
      sensors.power_limit_watts ? fmt::format(" / {:.0f}", *sensors.power_limit_watts) : "";
  if (sensors.power_watts)
    add(fmt::format("{:3.0f}{} W", *sensors.power_watts, limit), Colour::power);
  return line + "\n";
}

std::string process_line(const Snapshot& snapshot, const GpuProcess& process) {
  const std::optional<size_t> index = device_index(snapshot, process);
  const std::string device = index                         ? fmt::format("vulkan:{}", *index)
                             : process.pci_address.empty() ? process.driver
                                                           : process.pci_address;
  const std::string memory =
      process.regions.empty() ? "" : format_bytes(device_bytes(process.regions));
  const std::string busy =
      process.busy_percent ? fmt::format("{:.0f} %", *process.busy_percent) : "";
  return fmt::format("{:>8}  {:<10} {:<12} {:>12} {:>6}  {}\n", process.pid, process.user, device,
                     memory, busy, clip(process.command));
}

nlohmann::json heap_json(const HeapUsage& heap) {
  nlohmann::json json = {{"size", heap.size},
                         {"device_local", heap.device_local},
                         {"budget", nullptr},
                         {"usage", nullptr},
                         {"in_use", nullptr}};
  if (const std::optional<uint64_t> used = bytes_in_use(heap)) {
    json["budget"] = heap.budget;
    json["usage"] = heap.usage;
    json["in_use"] = *used;
  }
  return json;
}

nlohmann::json optional_json(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

nlohmann::json device_json(const NumberedDevice& numbered) {
  const DeviceListing& device = numbered.device;
  nlohmann::json json = {{"index", numbered.index},         {"name", device.info.name},
                         {"driver", device.info.driver},    {"type", device.type},
                         {"uuid", device.info.uuid},        {"pci_address", device.pci_address},
                         {"heaps", nlohmann::json::array()}};
  const GpuSensors& sensors = numbered.sensors;
  json.update({{"busy_percent", optional_json(sensors.busy_percent)},
               {"clock_mhz", optional_json(sensors.clock_mhz)},
               {"temperature_celsius", optional_json(sensors.temperature_celsius)},
               {"power_watts", optional_json(sensors.power_watts)},
               {"power_limit_watts", optional_json(sensors.power_limit_watts)}});
  for (const HeapUsage& heap : device.heaps) json["heaps"].push_back(heap_json(heap));
  return json;
}

}  // namespace

std::optional<uint64_t> bytes_in_use(const HeapUsage& heap) {
  if (heap.budget == 0) return {};
  const uint64_t free = heap.budget - std::min(heap.budget, heap.usage);
  return heap.size - std::min(heap.size, free);
}

void add_rates(Snapshot& now, const Snapshot& before) {
  const double seconds = now.seconds - before.seconds;
  std::map<std::string, EnginePercents> by_device;
  for (GpuProcess& process : now.processes)
    for (const GpuProcess& earlier : before.processes) {
      if (process.pid != earlier.pid || process.pci_address != earlier.pci_address ||
          process.driver != earlier.driver)
        continue;
      const EnginePercents percents = engine_percents(earlier.engines, process.engines, seconds);
      for (const auto& [engine, percent] : percents)
        by_device[process.pci_address][engine] += percent;
      if (!process.busy_percent) process.busy_percent = busiest_percent(percents);
    }
  for (NumberedDevice& device : now.devices) {
    GpuSensors& sensors = device.sensors;
    if (!sensors.busy_percent && !device.device.pci_address.empty())
      sensors.busy_percent = busiest_percent(by_device[device.device.pci_address]);
    for (const NumberedDevice& earlier : before.devices)
      if (earlier.index == device.index && !sensors.power_watts)
        sensors.power_watts = mean_power_watts(earlier.sensors, sensors, seconds);
  }
}

void select_devices(Snapshot& snapshot, const std::string& choice) {
  if (choice.empty()) return;
  std::erase_if(snapshot.devices, [&](const NumberedDevice& d) {
    return !device_matches(d.device.info.name, d.device.info.uuid, d.index, choice);
  });
  check<DeviceError>(!snapshot.devices.empty(), "top", "no device matches '{}'", choice);
  std::erase_if(snapshot.processes,
                [&](const GpuProcess& process) { return !device_index(snapshot, process); });
}

std::string to_text(const Snapshot& snapshot, bool colours) {
  std::string text = snapshot.time + "\n";
  for (const NumberedDevice& numbered : snapshot.devices) {
    const DeviceListing& device = numbered.device;
    text += fmt::format("\n{}  driver  {}\n", device_line(numbered, colours), device.info.driver);
    for (size_t i = 0; i < device.heaps.size(); ++i) text += heap_line(i, device.heaps[i]);
  }
  if (snapshot.processes.empty()) return text;
  text += fmt::format("\n{:>8}  {:<10} {:<12} {:>12} {:>6}  {}\n", "PID", "USER", "DEVICE",
                      "MEMORY", "BUSY", "COMMAND");
  for (const GpuProcess& process : snapshot.processes) text += process_line(snapshot, process);
  return text;
}

nlohmann::json to_json(const Snapshot& snapshot) {
  nlohmann::json json = {{"time", snapshot.time},
                         {"devices", nlohmann::json::array()},
                         {"processes", nlohmann::json::array()}};
  for (const NumberedDevice& device : snapshot.devices)
    json["devices"].push_back(device_json(device));
  for (const GpuProcess& process : snapshot.processes) {
    const std::optional<size_t> index = device_index(snapshot, process);
    json["processes"].push_back(
        {{"pid", process.pid},
         {"user", process.user},
         {"command", process.command},
         {"device", index ? nlohmann::json(*index) : nlohmann::json()},
         {"driver", process.driver},
         {"pci_address", process.pci_address},
         {"bytes", process.regions.empty() ? nlohmann::json()
                                           : nlohmann::json(device_bytes(process.regions))},
         {"busy_percent", optional_json(process.busy_percent)},
         {"regions", process.regions}});
  }
  return json;
}

}  // namespace rw
