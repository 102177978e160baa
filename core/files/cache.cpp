#include "core/files/cache.h"

#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <unistd.h>
#include <utility>

#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/base/hash.h"

namespace rw {

namespace {

namespace fs = std::filesystem;

constexpr mode_t own_folder = 0700, own_file = 0600, of_others = S_IWGRP | S_IWOTH;

// This stands before the contents: drivers trust their input, so damage must be found before they
// read it.
struct Seal {
  uint64_t magic = 0x3165686361637772u;  // "rwcache1"
  uint64_t bytes = 0, hash = 0;
  bool operator==(const Seal&) const = default;
};

Seal seal_of(std::span<const std::byte> contents) {
  return {.bytes = contents.size(), .hash = fnv1a(contents)};
}

struct Descriptor {
  int value = -1;
  explicit Descriptor(int file) : value(file) {}
  Descriptor(Descriptor&& other) noexcept : value(std::exchange(other.value, -1)) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

void make_own_folders(const fs::path& folder) {
  if (::mkdir(folder.c_str(), own_folder) == 0 || errno != ENOENT) return;
  if (folder.parent_path() == folder) return;
  make_own_folders(folder.parent_path());
  ::mkdir(folder.c_str(), own_folder);  // errors show when it is opened
}

// Why the open folder must not be trusted; empty if it belongs to us alone.
std::string fault_of(const struct stat& status) {
  if (status.st_uid != ::geteuid())
    return fmt::format("it must belong to user {}, it belongs to {}", ::geteuid(), status.st_uid);
  if (status.st_mode & of_others) return "others must not be able to write to it: chmod go-w";
  return "";
}

// The open cache folder. With a value below 0 it is not available, and `fault` says why; without a
// fault it merely does not exist yet.
Descriptor open_folder(bool make, std::string& fault) {
  const fs::path path = user_cache_directory();
  if (path.empty()) fault = "there must be a folder: set HOME, or REWIND_CACHE to a folder";
  if (path.empty()) return Descriptor(-1);
  if (make) make_own_folders(path);
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const int error = folder.value < 0 ? errno : 0;
  if (error == ENOENT && !make) return folder;
  struct stat status = {}, link = {};
  if (error != 0 || ::fstat(folder.value, &status) != 0)
    fault = std::strerror(error != 0 ? error : errno);
  else if (::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode) && link.st_uid != 0 &&
           link.st_uid != ::geteuid())
    fault =
        fmt::format("it must not be a link of another user, it belongs to user {}", link.st_uid);
  else
    fault = fault_of(status);
  if (fault.empty()) return folder;
  fault = fmt::format(
      "'{}' must be a folder that belongs to this user alone: {}; REWIND_CACHE may name another",
      path.string(), fault);
  return Descriptor(-1);
}

// The same for callers that can do without it. The reason why they must is printed once.
Descriptor open_folder(bool make) {
  static std::mutex mutex;
  static std::set<std::string> said;
  std::string fault;
  Descriptor folder = open_folder(make, fault);
  const std::lock_guard lock(mutex);
  if (!fault.empty() && said.insert(fault).second)
    std::fprintf(stderr, "warning: nothing is kept for later runs: %s\n", fault.c_str());
  return folder;
}

// The bytes of a file in the folder that belongs to us alone; nothing if there is no such file.
std::optional<std::string> read_whole(const std::string& name, uint64_t most) {
  const Descriptor folder = open_folder(false);
  if (folder.value < 0) return std::nullopt;
  // Opening a pipe would wait for a writer.
  const Descriptor file(
      ::openat(folder.value, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status = {};
  if (file.value < 0 || ::fstat(file.value, &status) != 0 || !S_ISREG(status.st_mode) ||
      !fault_of(status).empty() || static_cast<uint64_t>(status.st_size) > most)
    return std::nullopt;
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  for (ssize_t n = 1; n > 0 && done<bytes.size(); done += n> 0 ? static_cast<size_t>(n) : 0)
    n = ::read(file.value, bytes.data() + done, bytes.size() - done);
  return done == bytes.size() ? std::optional(std::move(bytes)) : std::nullopt;
}

bool write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

// Writes the file under another name first, so that it is there whole or not at all.
bool replace(const std::string& name, std::initializer_list<std::span<const std::byte>> pieces) {
  const Descriptor folder = open_folder(true);
  if (folder.value < 0) return false;
  static std::atomic<uint64_t> count = 0;  // several devices of a process may do so at once
  const std::string part = fmt::format("{}.{}.{}.part", name, ::getpid(), count++);
  ::unlinkat(folder.value, part.c_str(), 0);  // of a process of that number, which was killed
  const Descriptor file(::openat(folder.value, part.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, own_file));
  bool done = file.value >= 0;
  for (const auto& piece : pieces) done = done && write_all(file.value, piece);
  done = done && ::renameat(folder.value, part.c_str(), folder.value, name.c_str()) == 0;
  if (!done) ::unlinkat(folder.value, part.c_str(), 0);
  return done;
}

}  // namespace

fs::path user_cache_directory() {
  const auto variable = [](const char* name) { return fs::path(env_text(name)); };
  if (const auto own = variable("REWIND_CACHE"); !own.empty()) return own;
  if (const auto xdg = variable("XDG_CACHE_HOME"); xdg.is_absolute()) return xdg / "rewind";
  if (const auto home = variable("HOME"); home.is_absolute()) return home / ".cache" / "rewind";
  return {};
}

fs::path make_cache_directory() {
  std::string fault;
  const Descriptor folder = open_folder(true, fault);
  check<FileError>(folder.value >= 0, "cache", "{}", fault);
  return user_cache_directory();
}

std::vector<std::byte> read_cache(const std::string& file) {
  const std::optional<std::string> whole = read_whole(file, uint64_t{1} << 30);
  Seal seal;
  if (!whole || whole->size() < sizeof seal) return {};
  std::memcpy(&seal, whole->data(), sizeof seal);
  const auto contents = std::as_bytes(std::span(*whole)).subspan(sizeof seal);
  if (seal != seal_of(contents)) return {};
  return {contents.begin(), contents.end()};
}

void write_cache(const std::string& file, std::span<const std::byte> contents) {
  const Seal seal = seal_of(contents);
  replace(file, {std::as_bytes(std::span(&seal, 1)), contents});
}

std::optional<std::string> read_cache_text(const std::string& file) {
  return read_whole(file, 1 << 20);
}

bool write_cache_text(const std::string& file, std::string_view text) {
  return replace(file, {std::as_bytes(std::span(text))});
}

bool remove_cache(const std::string& file) {
  const Descriptor folder = open_folder(false);
  if (folder.value < 0) return false;
  const bool removed = ::unlinkat(folder.value, file.c_str(), 0) == 0;
  check<FileError>(removed || errno == ENOENT, "cache", "'{}' must be removable: {}",
                   (user_cache_directory() / file).string(), std::strerror(errno));
  return removed;
}

}  // namespace rw
