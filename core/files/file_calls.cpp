#include "core/files/file_calls.h"

#include <sys/file.h>

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <utility>

namespace rw::file_calls {

namespace {

Hook& hook() {
  static Hook hook;
  return hook;
}

// False if the call must fail, with errno set.
bool allowed(Call call, size_t& bytes) {
  const int error = hook() ? hook()(call, bytes) : 0;
  if (error != 0) errno = error;
  return error == 0;
}

bool allowed(Call call) {
  size_t none = 0;
  return allowed(call, none);
}

}  // namespace

void set_hook(Hook replacement) {
  hook() = std::move(replacement);
}

int stat(const char* path, struct stat& status) {
  return allowed(Call::stat) ? ::stat(path, &status) : -1;
}

int fstat(int file, struct stat& status) {
  return allowed(Call::stat) ? ::fstat(file, &status) : -1;
}

int open(const char* path, int flags, mode_t mode) {
  return allowed(Call::open) ? ::open(path, flags | O_CLOEXEC, mode) : -1;
}

int duplicate(int file) {
  return allowed(Call::open) ? fcntl(file, F_DUPFD_CLOEXEC, 0) : -1;
}

int lock(int file) {
  return allowed(Call::lock) ? flock(file, LOCK_EX | LOCK_NB) : -1;
}

ssize_t read_at(int file, void* data, size_t size, off_t offset) {
  return allowed(Call::read, size) ? pread(file, data, size, offset) : -1;
}

ssize_t write(int file, const void* data, size_t size) {
  return allowed(Call::write, size) ? ::write(file, data, size) : -1;
}

ssize_t write_at(int file, const void* data, size_t size, off_t offset) {
  return allowed(Call::write, size) ? pwrite(file, data, size, offset) : -1;
}

int set_mode(int file, uid_t owner, gid_t group, mode_t mode) {
  if (!allowed(Call::set_mode)) return -1;
  const int owned = fchown(file, owner, group);  // only root may; and it clears bits of the mode
  return fchmod(file, mode) == 0 ? owned : -1;
}

int sync(int file) {
  return allowed(Call::sync) ? fsync(file) : -1;
}

int close(int file) {
  const bool let = allowed(Call::close);
  const int error = errno;
  const int result = ::close(file);
  if (let) return result;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) {
  return allowed(Call::rename) ? std::rename(from, to) : -1;
}

int unlink(const char* path) {
  return allowed(Call::unlink) ? ::unlink(path) : -1;
}

int make_folders(const char* path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  errno = error.value();
  return error ? -1 : 0;
}

bool sync_folder(const char* path) {
  const int folder = open(path, O_RDONLY | O_DIRECTORY);
  if (folder < 0) return errno == EACCES;
  const bool is_stored = sync(folder) == 0 || errno == EINVAL;
  const int error = errno;
  close(folder);
  errno = error;
  return is_stored;
}

}  // namespace rw::file_calls
