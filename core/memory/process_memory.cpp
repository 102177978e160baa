#include "core/memory/process_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace rw {

uint64_t host_memory_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

namespace {

// The number after `name` in a file of lines, or of one number, if there is one.
std::optional<uint64_t> number_in(const std::filesystem::path& file, const std::string& name = "") {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    uint64_t value = 0;
    if (std::istringstream(line.substr(name.size())) >> value) return value;
  }
  return {};
}

// The bytes that a control group may take, and those that it takes.
struct GroupMemory {
  uint64_t most = 0, used = 0;
};

// Those of this process's control groups and of the groups around them that have limits, of version
// 2 or 1. Files that memory holds copies of are given back before a process is ended.
std::vector<GroupMemory> group_limits(const std::filesystem::path& root) {
  std::vector<GroupMemory> found;
  const std::filesystem::path mounted = root / "sys/fs/cgroup";
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,memory:/group", "0::/group"
    const size_t name = line.find(':') + 1, end = line.find(':', name);
    if (end == std::string::npos) continue;
    const bool is_second = end == name;
    if (!is_second && ("," + line.substr(name, end - name) + ",").find(",memory,") == line.npos)
      continue;
    const std::filesystem::path top = is_second ? mounted : mounted / "memory";
    const char* const most_file = is_second ? "memory.max" : "memory.limit_in_bytes";
    const char* const used_file = is_second ? "memory.current" : "memory.usage_in_bytes";
    const char* const files = is_second ? "inactive_file " : "total_inactive_file ";
    std::filesystem::path group = std::filesystem::path(line.substr(end + 1)).relative_path();
    for (bool is_top = false; !is_top; group = group.parent_path()) {
      is_top = group.empty();
      const std::filesystem::path folder = top / group;
      const auto most = number_in(folder / most_file);
      if (!most) continue;
      const uint64_t used = number_in(folder / used_file).value_or(0);
      const uint64_t cached = number_in(folder / "memory.stat", files).value_or(0);
      found.push_back({*most, used - std::min(used, cached)});
    }
  }
  return found;
}

}  // namespace

uint64_t spare_host_bytes(const std::filesystem::path& root) {
  uint64_t spare = host_memory_bytes();
  const auto bound = [&](uint64_t most, uint64_t used) {
    spare = std::min(spare, most - std::min(most, used));
  };
  if (const auto free = number_in(root / "proc/meminfo", "MemAvailable:")) bound(*free * 1024, 0);
  for (const GroupMemory& group : group_limits(root)) bound(group.most, group.used);
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
