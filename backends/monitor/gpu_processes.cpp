#include "backends/monitor/gpu_processes.h"

#include <algorithm>
#include <charconv>
#include <pwd.h>
#include <set>
#include <tuple>
#include <utility>

#include "backends/monitor/system_text.h"

namespace rw {

namespace {

namespace fs = std::filesystem;

// Converts "123 KiB" to bytes; a number alone counts bytes.
uint64_t parse_size(std::string_view text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return 0;
  const std::string_view unit = trim({rest, static_cast<size_t>(end - rest)});
  return unit == "KiB" ? value << 10 : unit == "MiB" ? value << 20 : value;
}

// Calls visit(key, value) for each line "key: value".
template <class Visit>
void for_each_field(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos) visit(line.substr(0, colon), trim(line.substr(colon + 1)));
  }
}

std::string user_name(const fs::path& process) {
  std::string uid;
  for_each_field(read_text(process / "status"), [&](std::string_view key, std::string_view value) {
    if (key == "Uid") uid = value.substr(0, value.find_first_of(" \t"));
  });
  uint32_t number = 0;
  if (std::from_chars(uid.data(), uid.data() + uid.size(), number).ec != std::errc()) return "?";
  const passwd* entry = getpwuid(number);
  return entry ? entry->pw_name : uid;
}

// Returns the command that was started, or the process's name if that is unknown; without control
// characters, which would reach the terminal.
std::string command_line(const fs::path& process) {
  std::string command = read_text(process / "cmdline");
  while (command.ends_with('\0')) command.pop_back();
  if (command.empty()) command = trim(read_text(process / "comm"));
  for (char& c : command)
    if (c == '\0')
      c = ' ';
    else if (static_cast<unsigned char>(c) < 32 || c == 127)
      c = '?';
  return command;
}

bool is_pid(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

// Takes a line about an engine's use, and tells whether it is one.
bool take_engine(EngineUses& engines, std::string_view key, std::string_view value) {
  const auto engine = [&](std::string_view prefix) -> EngineUse* {
    if (!key.starts_with(prefix)) return nullptr;
    return &engines[std::string(key.substr(prefix.size()))];
  };
  if (EngineUse* use = engine("drm-engine-capacity-"))
    use->capacity = parse_size(value);
  else if (EngineUse* use = engine("drm-engine-"))
    use->nanoseconds = parse_size(value);
  else if (EngineUse* use = engine("drm-total-cycles-"))
    use->total_cycles = parse_size(value);
  else if (EngineUse* use = engine("drm-cycles-"))
    use->cycles = parse_size(value);
  else
    return false;
  return true;
}

// Adds the use of another file of the same process.
void add(const EngineUse& use, EngineUse& all) {
  if (use.nanoseconds) all.nanoseconds = all.nanoseconds.value_or(0) + *use.nanoseconds;
  all.cycles += use.cycles;
  all.total_cycles = std::max(all.total_cycles, use.total_cycles);  // all see the same clock
  all.capacity = use.capacity;
}

void add_processes(const fs::path& folder, std::vector<GpuProcess>& all) {
  std::map<std::string, GpuProcess> by_device;
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  for (const fs::path& file : entries(folder / "fdinfo")) {
    const std::optional<DrmClient> client = parse_fdinfo(read_text(file));
    if (!client || !seen.emplace(client->driver, client->pci_address, client->id).second) continue;
    GpuProcess& process = by_device[client->driver + client->pci_address];
    process.driver = client->driver;
    process.pci_address = client->pci_address;
    for (const auto& [region, bytes] : client->regions) process.regions[region] += bytes;
    for (const auto& [name, use] : client->engines) add(use, process.engines[name]);
  }
  for (auto& [device, process] : by_device) {
    if (device_bytes(process.regions) == 0) continue;
    process.pid = std::stoll(folder.filename());
    describe(process, folder.parent_path());
    all.push_back(std::move(process));
  }
}

}  // namespace

void describe(GpuProcess& process, const fs::path& proc) {
  const fs::path folder = proc / std::to_string(process.pid);
  process.user = user_name(folder);
  process.command = command_line(folder);
}

std::optional<DrmClient> parse_fdinfo(std::string_view text) {
  // Bytes in memory; without such a line, the name that older kernels use for them; else the bytes
  // that were allocated.
  constexpr std::string_view kKinds[] = {"drm-resident-", "drm-memory-", "drm-total-"};
  DrmClient client;
  std::map<std::string, size_t, std::less<>> kind_of;
  for_each_field(text, [&](std::string_view key, std::string_view value) {
    if (key == "drm-driver") client.driver = value;
    if (key == "drm-pdev") client.pci_address = value;
    if (key == "drm-client-id") client.id = value;
    if (take_engine(client.engines, key, value)) return;
    for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
      if (!key.starts_with(kKinds[kind])) continue;
      const std::string region(key.substr(kKinds[kind].size()));
      const auto known = kind_of.find(region);
      if (known != kind_of.end() && known->second < kind) continue;
      kind_of[region] = kind;
      client.regions[region] = parse_size(value);
    }
  });
  if (client.driver.empty()) return {};
  return client;
}

EnginePercents engine_percents(const EngineUses& before, const EngineUses& now, double seconds) {
  EnginePercents percents;
  for (const auto& [name, use] : now) {
    const auto found = before.find(name);
    if (found == before.end()) continue;
    const EngineUse& earlier = found->second;
    // The value is less than before if a file was closed in between.
    const auto since = [](uint64_t then, uint64_t count) {
      return static_cast<double>(count) - static_cast<double>(then);
    };
    double busy = -1, all = 0;
    if (use.total_cycles && earlier.total_cycles) {
      busy = since(earlier.cycles, use.cycles);
      all = since(*earlier.total_cycles, *use.total_cycles);
    } else if (use.nanoseconds && earlier.nanoseconds) {
      busy = since(*earlier.nanoseconds, *use.nanoseconds);
      all = seconds * 1e9;
    }
    const double engines = static_cast<double>(std::max<uint64_t>(1, use.capacity));
    if (busy >= 0 && all > 0) percents[name] = 100 * busy / all / engines;
  }
  return percents;
}

std::optional<double> busiest_percent(const EnginePercents& percents) {
  std::optional<double> most;
  for (const auto& [name, percent] : percents)
    most = std::min(100.0, std::max(most.value_or(0), percent));
  return most;
}

uint64_t device_bytes(const MemoryRegions& regions) {
  uint64_t own = 0, all = 0;
  bool has_own = false;
  for (const auto& [region, bytes] : regions) {
    all += bytes;
    if (!region.starts_with("vram") && !region.starts_with("local")) continue;
    has_own = true;
    own += bytes;
  }
  return has_own ? own : all;
}

std::vector<GpuProcess> gpu_processes(const fs::path& proc) {
  std::vector<GpuProcess> all;
  for (const fs::path& folder : entries(proc))
    if (is_pid(folder.filename())) add_processes(folder, all);
  std::sort(all.begin(), all.end(), [](const GpuProcess& a, const GpuProcess& b) {
    const uint64_t x = device_bytes(a.regions), y = device_bytes(b.regions);
    return x != y ? x > y : a.pid < b.pid;
  });
  return all;
}

}  // namespace rw
