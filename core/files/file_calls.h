// The system calls that read and write files, and a hook that makes them fail. With it tests see a
// full disk, a broken one, or a process that dies at any call.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <functional>

namespace rw::file_calls {

enum class Call { stat, open, lock, read, write, set_mode, sync, close, rename, unlink };

// The hook runs before each call. It returns the errno to fail with, or 0 to let the call through,
// and may lower `bytes`, the size of a write. If it is empty, every call goes through. It is not
// thread-safe.
using Hook = std::function<int(Call call, size_t& bytes)>;
void set_hook(Hook hook);

// These behave like the system's: -1 and errno on failure. A close that fails has closed the file
// all the same.
int stat(const char* path, struct stat& status);
int fstat(int file, struct stat& status);
int open(const char* path, int flags, mode_t mode = 0);
int duplicate(int file);  // closed by exec
int lock(int file);       // exclusive; EWOULDBLOCK if another holder has it
ssize_t read_at(int file, void* data, size_t size, off_t offset);
ssize_t write(int file, const void* data, size_t size);
ssize_t write_at(int file, const void* data, size_t size, off_t offset);
int set_mode(int file, uid_t owner, gid_t group, mode_t mode);
int sync(int file);
int close(int file);
int rename(const char* from, const char* to);
int unlink(const char* path);

// Makes a folder with those above it; one that exists is no error. -1 and errno on failure.
int make_folders(const char* path);
// A rename is safely stored only when the folder is. Folders that may not be read, and file systems
// that do not sync folders, are no error. False, with errno, if it fails.
bool sync_folder(const char* path);

}  // namespace rw::file_calls
