#include "tools/top/gpu_processes.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <pwd.h>
#include <set>
#include <sstream>
#include <tuple>

namespace rw {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// "123 KiB" in bytes; a number alone counts bytes.
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

// Empty where there is no such file, or none that may be read. A file of a process that ends fails
// in the midst of reading: what came before counts.
std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // catches what iterators would throw
  return std::move(text).str();
}

// Processes and files come and go, and others' may not be looked at: what fails ends the list.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    all.push_back(it->path());
  return all;
}

std::string user_name(const fs::path& process) {
  std::string uid;
  for_each_field(read(process / "status"), [&](std::string_view key, std::string_view value) {
    if (key == "Uid") uid = value.substr(0, value.find_first_of(kSpace));
  });
  uint32_t number = 0;
  if (std::from_chars(uid.data(), uid.data() + uid.size(), number).ec != std::errc()) return "?";
  const passwd* entry = getpwuid(number);
  return entry ? entry->pw_name : uid;
}

// What was started, or the name of a process that does not tell; without control characters, which
// would reach the terminal.
std::string command_line(const fs::path& process) {
  std::string command = read(process / "cmdline");
  while (command.ends_with('\0')) command.pop_back();
  if (command.empty()) command = trim(read(process / "comm"));
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

void add_processes(const fs::path& folder, std::vector<GpuProcess>& all) {
  std::map<std::string, GpuProcess> by_device;
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  for (const fs::path& file : entries(folder / "fdinfo")) {
    const std::optional<DrmClient> client = parse_fdinfo(read(file));
    if (!client || !seen.emplace(client->driver, client->pci_address, client->id).second) continue;
    GpuProcess& process = by_device[client->driver + client->pci_address];
    process.driver = client->driver;
    process.pci_address = client->pci_address;
    for (const auto& [region, bytes] : client->regions) process.regions[region] += bytes;
  }
  for (auto& [device, process] : by_device) {
    if (device_bytes(process.regions) == 0) continue;
    process.pid = std::stoll(folder.filename());
    process.user = user_name(folder);
    process.command = command_line(folder);
    all.push_back(std::move(process));
  }
}

}  // namespace

std::optional<DrmClient> parse_fdinfo(std::string_view text) {
  // What is in memory; else what older kernels call so; else what was allocated.
  constexpr std::string_view kKinds[] = {"drm-resident-", "drm-memory-", "drm-total-"};
  DrmClient client;
  std::map<std::string, size_t, std::less<>> kind_of;
  for_each_field(text, [&](std::string_view key, std::string_view value) {
    if (key == "drm-driver") client.driver = value;
    if (key == "drm-pdev") client.pci_address = value;
    if (key == "drm-client-id") client.id = value;
    for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
      if (!key.starts_with(kKinds[kind])) continue;
      const std::string region(key.substr(kKinds[kind].size()));
      if (region.starts_with("cycles-")) continue;  // drm-total-cycles-ENGINE counts time
      const auto known = kind_of.find(region);
      if (known != kind_of.end() && known->second < kind) continue;
      kind_of[region] = kind;
      client.regions[region] = parse_size(value);
    }
  });
  if (client.driver.empty()) return {};
  return client;
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
