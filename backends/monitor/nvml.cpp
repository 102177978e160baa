#include "backends/monitor/nvml.h"

#include <array>
#include <dlfcn.h>

namespace rw {

namespace {

// These are declared as in nvml.h. The names of functions have versions, so the structures do not
// change.
struct Utilization {
  unsigned gpu = 0, memory = 0;  // percent
};
struct ProcessInfo {
  unsigned pid = 0;
  unsigned long long bytes = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};
struct ProcessSample {
  unsigned pid = 0;
  unsigned long long time = 0;                             // microseconds
  unsigned gpu = 0, memory = 0, encoder = 0, decoder = 0;  // percent
};
constexpr unsigned kShaderClock = 1, kChipSensor = 0;
constexpr unsigned long long kUnknownBytes = ~0ull;
constexpr size_t kMostProcesses = 256;

}  // namespace

Nvml::Nvml(const std::string& library)
    : library_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* handle) {
        if (handle) dlclose(handle);
      }) {
  if (library_ && !call("nvmlInit_v2")) library_.reset();
}

// False if the library has no such function or it fails: a device need not tell everything.
template <class... Arguments>
bool Nvml::call(const char* function, Arguments... arguments) const {
  if (!library_) return false;
  const auto found = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_.get(), function));
  return found && found(arguments...) == 0;
}

void* Nvml::device_at(const std::string& pci_address) const {
  void* device = nullptr;
  if (pci_address.empty()) return nullptr;
  return call("nvmlDeviceGetHandleByPciBusId_v2", pci_address.c_str(), &device) ? device : nullptr;
}

GpuSensors Nvml::sensors(const std::string& pci_address) const {
  void* const device = device_at(pci_address);
  GpuSensors found;
  if (!device) return found;
  Utilization use;
  unsigned value = 0;
  if (call("nvmlDeviceGetUtilizationRates", device, &use)) found.busy_percent = use.gpu;
  if (call("nvmlDeviceGetClockInfo", device, kShaderClock, &value)) found.clock_mhz = value;
  if (call("nvmlDeviceGetTemperature", device, kChipSensor, &value))
    found.temperature_celsius = value;
  constexpr double milliwatt = 1e-3;
  if (call("nvmlDeviceGetPowerUsage", device, &value)) found.power_watts = value * milliwatt;
  if (call("nvmlDeviceGetEnforcedPowerLimit", device, &value))
    found.power_limit_watts = value * milliwatt;
  return found;
}

std::vector<GpuProcess> Nvml::processes(const std::string& pci_address) const {
  void* const device = device_at(pci_address);
  if (!device) return {};
  std::map<unsigned, GpuProcess> by_pid;
  // A process that both computes and draws is in both lists, with the same bytes.
  for (const char* list :
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"}) {
    std::array<ProcessInfo, kMostProcesses> infos;
    unsigned count = infos.size();
    if (!call(list, device, &count, infos.data())) continue;
    for (unsigned i = 0; i < count; ++i) {
      GpuProcess& process = by_pid[infos[i].pid];
      process.pid = infos[i].pid;
      process.driver = "nvidia";
      process.pci_address = pci_address;
      if (infos[i].bytes != kUnknownBytes) process.regions["vram"] = infos[i].bytes;
    }
  }
  std::array<ProcessSample, kMostProcesses> samples;
  unsigned count = samples.size();
  constexpr unsigned long long since = 0;
  if (call("nvmlDeviceGetProcessUtilization", device, samples.data(), &count, since)) {
    std::map<unsigned, unsigned long long> newest;
    for (unsigned i = 0; i < count; ++i) {
      const auto process = by_pid.find(samples[i].pid);
      if (process == by_pid.end() || samples[i].time < newest[samples[i].pid]) continue;
      newest[samples[i].pid] = samples[i].time;
      process->second.busy_percent = samples[i].gpu;
    }
  }
  std::vector<GpuProcess> all;
  for (auto& [pid, process] : by_pid) all.push_back(std::move(process));
  return all;
}

}  // namespace rw
