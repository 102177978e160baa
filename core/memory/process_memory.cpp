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

HostMemory host_memory() {
  HostMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    uint64_t* value = line.starts_with("VmRSS:")   ? &memory.current
                      : line.starts_with("VmHWM:") ? &memory.peak
                                                   : nullptr;
    if (!value) continue;
    std::istringstream(line.substr(line.find(':') + 1)) >> *value;
    *value *= 1024;
  }
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
