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

std::string process_line(const Snapshot& snapshot, const GpuProcess& process) {
  const std::optional<size_t> index = device_index(snapshot, process);
  const std::string device = index                         ? fmt::format("vulkan:{}", *index)
                             : process.pci_address.empty() ? process.driver
                                                           : process.pci_address;
  return fmt::format("{:>8}  {:<10} {:<12} {:>12}  {}\n", process.pid, process.user, device,
                     format_bytes(device_bytes(process.regions)), clip(process.command));
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

nlohmann::json device_json(const NumberedDevice& numbered) {
  const DeviceListing& device = numbered.device;
  nlohmann::json json = {{"index", numbered.index},         {"name", device.info.name},
                         {"driver", device.info.driver},    {"type", device.type},
                         {"uuid", device.info.uuid},        {"pci_address", device.pci_address},
                         {"heaps", nlohmann::json::array()}};
  for (const HeapUsage& heap : device.heaps) json["heaps"].push_back(heap_json(heap));
  return json;
}

}  // namespace

std::optional<uint64_t> bytes_in_use(const HeapUsage& heap) {
  if (heap.budget == 0) return {};
  const uint64_t free = heap.budget - std::min(heap.budget, heap.usage);
  return heap.size - std::min(heap.size, free);
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

std::string to_text(const Snapshot& snapshot) {
  std::string text = snapshot.time + "\n";
  for (const auto& [index, device] : snapshot.devices) {
    text += fmt::format("\nvulkan:{}  {} ({})\n  driver  {}\n", index, device.info.name,
                        device.type, device.info.driver);
    for (size_t i = 0; i < device.heaps.size(); ++i) text += heap_line(i, device.heaps[i]);
  }
  if (snapshot.processes.empty()) return text;
  text += fmt::format("\n{:>8}  {:<10} {:<12} {:>12}  {}\n", "PID", "USER", "DEVICE", "MEMORY",
                      "COMMAND");
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
    json["processes"].push_back({{"pid", process.pid},
                                 {"user", process.user},
                                 {"command", process.command},
                                 {"device", index ? nlohmann::json(*index) : nlohmann::json()},
                                 {"driver", process.driver},
                                 {"pci_address", process.pci_address},
                                 {"bytes", device_bytes(process.regions)},
                                 {"regions", process.regions}});
  }
  return json;
}

}  // namespace rw
