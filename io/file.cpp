#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view temporary_mark = ".partial-";

// Closes a descriptor at the end of a scope.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

// Renaming is safely stored only when the folder is.
bool sync_directory(const fs::path& directory) {
  const Descriptor folder{open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  return folder.value >= 0 && fsync(folder.value) == 0;
}

}  // namespace

AtomicFile::AtomicFile(fs::path target)
    : target_(fs::absolute(target)),
      temporary_(target_.string() + std::string(temporary_mark) + "XXXXXX") {
  std::error_code ignored;  // what matters shows when the file is made
  fs::create_directories(target_.parent_path(), ignored);
  descriptor_ = mkostemp(temporary_.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail_with_errno("cannot create a file beside");
  fchmod(descriptor_, 0644);  // mkostemp makes it private
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (descriptor_ >= 0 && !temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_with_errno("cannot write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::commit() {
  if (fsync(descriptor_) != 0 || std::rename(temporary_.c_str(), target_.c_str()) != 0)
    fail_with_errno("cannot write");
  temporary_.clear();
  if (!sync_directory(target_.parent_path())) fail_with_errno("cannot store the folder of");
}

void AtomicFile::fail_with_errno(const char* what) const {
  fail<FileError>("write", "{} '{}': {}", what, target_.string(), std::strerror(errno));
}

bool AtomicFile::is_temporary(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.rfind(temporary_mark) == name.size() - temporary_mark.size() - 6 &&
         name.size() > temporary_mark.size() + 6;
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  check<FileError>(file.value >= 0, "read", "cannot open '{}': {}", path.string(),
                   std::strerror(errno));
  struct stat status = {};
  check<FileError>(fstat(file.value, &status) == 0 && S_ISREG(status.st_mode), "read",
                   "'{}' is not a file", path.string());
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return;  // cannot be mapped
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
  check<FileError>(data != MAP_FAILED, "read", "cannot map '{}': {}", path.string(),
                   std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace rw
