#include "core/memory/process_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>

namespace rw {

uint64_t host_memory_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

namespace {

// The number after `name` in a file of lines, or of one number, if there is one.
std::optional<uint64_t> number_in(const std::string& file, const std::string& name = "") {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    uint64_t value = 0;
    if (std::istringstream(line.substr(name.size())) >> value) return value;
  }
  return {};
}

// The folder of this process's control group, of version 2.
std::string control_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  return "/sys/fs/cgroup";
}

}  // namespace

uint64_t spare_host_bytes() {
  uint64_t spare = host_memory_bytes();
  const auto bound = [&](uint64_t most, uint64_t used) {
    spare = std::min(spare, most - std::min(most, used));
  };
  if (const auto free = number_in("/proc/meminfo", "MemAvailable:")) bound(*free * 1024, 0);
  const std::string group = control_group();
  if (const auto most = number_in(group + "/memory.max"))
    bound(*most, number_in(group + "/memory.current").value_or(0));
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    bound(space.rlim_cur, number_in("/proc/self/status", "VmSize:").value_or(0) * 1024);
  return spare - spare / 8;
}

HostMemory host_memory() {
  const auto bytes = [](const char* name) {
    return 1024 * number_in("/proc/self/status", name).value_or(0);
  };
  HostMemory memory{.current = bytes("VmRSS:"), .peak = bytes("VmHWM:")};
  if (memory.peak == 0) {  // no /proc; this number may include a parent before exec
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    memory.peak = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  }
  memory.peak = std::max(memory.peak, memory.current);
  return memory;
}

bool reset_host_peak() {
  std::ofstream refs("/proc/self/clear_refs");
  return static_cast<bool>(refs << "5" << std::flush);  // proc(5): VmHWM becomes VmRSS
}

std::optional<uint64_t> driver_overhead(const Backend& backend, uint64_t block_bytes) {
  const DeviceInfo& info = backend.info();
  if (info.is_cpu) return {};
  for (const HeapUsage& heap : backend.heaps())
    if (heap.device_local && heap.size == info.memory_bytes && heap.budget > 0)
      return heap.usage - std::min(heap.usage, block_bytes);
  return {};
}

}  // namespace rw
