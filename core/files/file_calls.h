// The system calls that reading and writing files make, and a hook that fails them: so tests see a
// full disk, a broken one, or a process that dies at any of them.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <functional>

namespace rw::file_calls {

enum class Call { stat, open, lock, read, write, set_mode, sync, close, rename, unlink };

// Asked before each call. Returns the errno to fail it with, or 0 to let it through; may lower
// `bytes`, what a write is to write. Empty: every call goes through. Not for several threads.
using Hook = std::function<int(Call call, size_t& bytes)>;
void set_hook(Hook hook);

// As the system's: -1 and errno on failure. A close that fails has closed the file all the same.
int stat(const char* path, struct stat& status);
int fstat(int file, struct stat& status);
int open(const char* path, int flags, mode_t mode = 0);
int duplicate(int file);  // closed by exec
int lock(int file);       // for this holder alone; EWOULDBLOCK where another has it
ssize_t read_at(int file, void* data, size_t size, off_t offset);
ssize_t write(int file, const void* data, size_t size);
ssize_t write_at(int file, const void* data, size_t size, off_t offset);
int set_mode(int file, uid_t owner, gid_t group, mode_t mode);
int sync(int file);
int close(int file);
int rename(const char* from, const char* to);
int unlink(const char* path);

}  // namespace rw::file_calls
