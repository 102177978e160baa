#include "core/files/file.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <random>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"
#include "core/files/file_calls.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view temporary_mark = ".partial-";
constexpr size_t random_letters = 6;

// Closes a descriptor at the end of a scope.
struct OpenDescriptor {
  int value;
  ~OpenDescriptor() {
    if (value >= 0) file_calls::close(value);
  }
};

// The N of /dev/fd/N and /proc/self/fd/N.
std::optional<int> own_descriptor(const fs::path& path) {
  const std::string name = path.filename();
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < 0) return {};
  std::error_code ignored;
  if (!fs::equivalent(path.parent_path(), "/proc/self/fd", ignored)) return {};
  return number;
}

// The file that a path stands for. Links are followed, also to a file that does not exist yet.
fs::path behind_links(const std::string& given) {
  check<FileError>(!given.empty(), "write", "a file needs a name, got ''");
  std::error_code no_folder;  // the current one may be gone
  fs::path path = fs::absolute(given, no_folder);
  if (no_folder) path = given;
  constexpr int most_links = 40;  // as the system
  for (int i = 0; i < most_links; ++i) {
    if (own_descriptor(path)) return path;
    std::error_code no_link;
    const fs::path next = fs::read_symlink(path, no_link);
    if (no_link) return path;
    path = path.parent_path() / next;
  }
  fail<FileError>("write", "cannot write '{}': {}", given, std::strerror(ELOOP));
}

std::string random_name() {
  constexpr std::string_view letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::random_device random;
  std::string name;
  while (name.size() < random_letters) name += letters[random() % letters.size()];
  return name;
}

// Hands all bytes to `call`, which may take some of them at a time. False, with errno, if it fails.
template <class F>
bool write_all(std::span<const std::byte> bytes, const F& call) {
  while (!bytes.empty()) {
    const ssize_t written = call(bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

// The temporary files of a target are named after it.
std::string temporary_prefix(const fs::path& target) {
  return target.filename().string() + std::string(temporary_mark);
}

// Removes the files of this target's writers that have died, whose locks the system has lifted. On
// a file system without locks, everything stays.
void remove_stale(const fs::path& target) {
  const std::string prefix = temporary_prefix(target);
  std::error_code error;
  fs::directory_iterator entry(target.parent_path(), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || name.size() != prefix.size() + random_letters) continue;
    const OpenDescriptor file{
        file_calls::open(entry->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK)};
    if (file.value >= 0 && file_calls::lock(file.value) == 0)
      file_calls::unlink(entry->path().c_str());
  }
}

// Whether a new file still belongs to its writer: a search for stale files may have locked it
// first.
bool keep_locked(int file) {
  if (file_calls::lock(file) != 0 && errno == EWOULDBLOCK) return false;
  struct stat status = {};
  return file_calls::fstat(file, status) != 0 || status.st_nlink > 0;
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& target, Folders folders)
    : name_(target.string()), target_(behind_links(name_)) {
  struct stat status = {};
  const bool there = file_calls::stat(target_.c_str(), status) == 0;
  if (!there && !target_.has_filename()) errno = EISDIR;
  if (!there && errno != ENOENT && errno != ENOTDIR) fail_with_errno("cannot write");
  if (own_descriptor(target_) || (there && !S_ISREG(status.st_mode))) {
    open_straight();
    return;
  }
  if (folders == Folders::are_made && file_calls::make_folders(target_.parent_path().c_str()) != 0)
    fail_with_errno("cannot create the folder of");
  // The successor of a private file must not be readable by others for a moment either.
  constexpr mode_t permissions = 0777;
  open_beside(there ? status.st_mode & permissions : 0666);
  // Not every file system has modes and owners.
  if (there)
    file_calls::set_mode(descriptor_, status.st_uid, status.st_gid, status.st_mode & permissions);
}

void check_can_write(const fs::path& target) {
  std::error_code unknown;
  const fs::file_status there = fs::status(target, unknown);
  if (own_descriptor(target) || fs::is_other(there)) return;
  const AtomicFile probe(fs::is_directory(there) ? target / "probe" : target);
}

AtomicFile::~AtomicFile() {
  abandon();
}

void AtomicFile::open_straight() {
  const std::optional<int> own = own_descriptor(target_);
  if (own == STDOUT_FILENO) std::fflush(stdout);  // earlier output must come first
  descriptor_ = own ? file_calls::duplicate(*own) : file_calls::open(target_.c_str(), O_WRONLY);
  if (descriptor_ < 0) fail_with_errno("cannot write");
}

void AtomicFile::open_beside(mode_t mode) {
  remove_stale(target_);
  for (;;) {
    const fs::path path = target_.parent_path() / (temporary_prefix(target_) + random_name());
    descriptor_ = file_calls::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, mode);
    if (descriptor_ < 0 && errno == EEXIST) continue;
    if (descriptor_ < 0) fail_with_errno("cannot create a file beside");
    temporary_ = path.string();
    if (keep_locked(descriptor_)) return;
    abandon();
  }
}

void AtomicFile::abandon() {
  for (int* file : {&descriptor_, &lock_})
    if (*file >= 0) file_calls::close(std::exchange(*file, -1));
  if (!temporary_.empty()) file_calls::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  const auto call = [&](auto rest) {
    return file_calls::write(descriptor_, rest.data(), rest.size());
  };
  if (!write_all(bytes, call)) fail_with_errno("cannot write");
}

void AtomicFile::rewrite(uint64_t offset, std::span<const std::byte> bytes) {
  const auto call = [&](auto rest) {
    const uint64_t at = offset + (bytes.size() - rest.size());
    return file_calls::write_at(descriptor_, rest.data(), rest.size(), static_cast<off_t>(at));
  };
  if (!write_all(bytes, call)) fail_with_errno("cannot go back in");
}

void AtomicFile::commit() {
  const bool straight = temporary_.empty();
  // Pipes and most devices have nothing to sync.
  if (file_calls::sync(descriptor_) != 0 && !(straight && errno == EINVAL))
    fail_with_errno("cannot write");
  if (!straight && (lock_ = file_calls::duplicate(descriptor_)) < 0)
    fail_with_errno("cannot write");
  const int closed = file_calls::close(std::exchange(descriptor_, -1));
  if (closed != 0) fail_with_errno("cannot write");
  if (straight) return;
  if (file_calls::rename(temporary_.c_str(), target_.c_str()) != 0) fail_with_errno("cannot write");
  temporary_.clear();
  file_calls::close(std::exchange(lock_, -1));
  if (!file_calls::sync_folder(target_.parent_path().c_str()))
    fail_with_errno("cannot store the folder of");
}

void AtomicFile::fail_with_errno(const char* what) {
  const int error = errno;
  abandon();
  fail<FileError>("write", "{} '{}': {}{}", what, name_, std::strerror(error),
                  error == EFBIG ? " (see `ulimit -f`)" : "");
}

bool AtomicFile::is_temporary(const fs::path& file) {
  const std::string name = file.filename().string();
  constexpr size_t end = temporary_mark.size() + random_letters;
  return name.size() > end && name.rfind(temporary_mark) == name.size() - end;
}

InputFile::InputFile(const fs::path& path) : name_(path.string()) {
  // Opening a pipe would wait for a writer.
  OpenDescriptor file{file_calls::open(name_.c_str(), O_RDONLY | O_NONBLOCK)};
  check<FileError>(file.value >= 0, "read", "cannot open '{}': {}", name_, std::strerror(errno));
  struct stat status = {};
  const bool is_known = file_calls::fstat(file.value, status) == 0;
  check<FileError>(is_known, "read", "cannot read '{}': {}", name_, std::strerror(errno));
  check<FileError>(S_ISREG(status.st_mode), "read",
                   "'{}' must be a regular file, not a folder, a pipe or a device", name_);
  size_ = static_cast<uint64_t>(status.st_size);
  descriptor_ = std::exchange(file.value, -1);
}

InputFile::~InputFile() {
  file_calls::close(descriptor_);
}

void InputFile::read(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got =
        file_calls::read_at(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    check<FileError>(got >= 0, "read", "cannot read '{}': {}", name_, std::strerror(errno));
    check<FileError>(got > 0, "read",
                     "'{}' must keep its {} bytes while it is open, it was cut short to {}", name_,
                     size_, offset);
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
}

void InputFile::forget(uint64_t offset, uint64_t bytes) const {
  (void)posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                      POSIX_FADV_DONTNEED);
}

FolderLock::FolderLock(const fs::path& folder) : path_(folder / "lock") {
  // Whoever removes the folder at this moment removes the locked file. File systems whose files
  // have no lasting numbers never show that it is the same.
  constexpr int tries = 3;
  for (int i = 0; i < tries && (i == 0 || !is_held()); ++i) take();
}

void FolderLock::take() {
  if (descriptor_ >= 0) file_calls::close(std::exchange(descriptor_, -1));
  const fs::path folder = path_.parent_path();
  const bool is_made = file_calls::make_folders(folder.c_str()) == 0;
  check<FileError>(is_made, "lock", "cannot make the folder '{}': {}", folder.string(),
                   std::strerror(errno));
  OpenDescriptor file{file_calls::open(path_.c_str(), O_RDWR | O_CREAT, 0666)};
  check<FileError>(file.value >= 0, "lock", "cannot make '{}': {}", path_.string(),
                   std::strerror(errno));
  if (file_calls::lock(file.value) != 0 && errno == EWOULDBLOCK) {
    char holder[64] = {};
    const ssize_t size = pread(file.value, holder, sizeof holder - 1, 0);
    fail<FileError>("lock", "'{}' is in use by process {}; wait for it, or use another folder",
                    folder.string(), size > 0 ? holder : "?");
  }
  // This is for the message above: a process that cannot name itself holds the lock all the same.
  const std::string self = std::to_string(getpid());
  if (ftruncate(file.value, 0) == 0) file_calls::write_at(file.value, self.data(), self.size(), 0);
  descriptor_ = std::exchange(file.value, -1);
}

bool FolderLock::is_held() const {
  struct stat own = {}, there = {};
  return file_calls::fstat(descriptor_, own) == 0 && file_calls::stat(path_.c_str(), there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) file_calls::close(descriptor_);
}

}  // namespace rw
