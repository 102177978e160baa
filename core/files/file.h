// Files that are written whole or not at all, files that are read in parts, and the lock of a
// folder.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace rw {

// How to treat a missing folder: such folders are_made, or must_exist (FileError).
enum class Folders { are_made, must_exist };

// Collects bytes in a temporary file beside `target`. commit() puts it in the target's place when
// it is safely stored: a reader, or a machine that loses power, finds the old file or all of the
// new one. Without commit() nothing changes. Links are followed. A new file has the mode that the
// umask leaves, and one that is replaced keeps its mode. Throws FileError, with the temporary file
// gone. The next writer removes the file that a killed one left beside the target; a living writer
// holds a lock on its own.
//
// Files that are not regular cannot be replaced: devices, pipes and this process's own descriptors
// (/dev/stdout, /dev/fd/3) receive the bytes as they come.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target, Folders folders = Folders::are_made);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. FileError.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Replaces bytes that were written, from `offset` on. Not for devices and pipes.
  void rewrite(uint64_t offset, std::span<const std::byte> bytes);
  // Puts the file in its place. FileError. It may be called at most once, with no write after it.
  void commit();

  // Tells whether the file is the temporary file of a writer, perhaps of one that was killed.
  static bool is_temporary(const std::filesystem::path& file);

 private:
  void open_straight();
  void open_beside(mode_t mode);
  void abandon();
  [[noreturn]] void fail_with_errno(const char* what);

  std::string name_;              // as it was given
  std::filesystem::path target_;  // behind all links
  // Empty: bytes go straight to the target, or are in place by now.
  std::string temporary_;
  int descriptor_ = -1, lock_ = -1;  // the same file: its lock lasts until it is in place
};

// Throws a FileError if a file, or files in a folder, cannot be written at `target` now; missing
// folders above it are made. Pipes and devices are not opened.
void check_can_write(const std::filesystem::path& target);

// A regular file that is open for reading. Nothing maps files: touching a page of a mapping that
// another process has cut off, or that the disk does not deliver, ends the program. Here it is a
// FileError.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  uint64_t size() const { return size_; }  // bytes, when it was opened

  // Fills `bytes` with those of the file from `offset` on.
  void read(uint64_t offset, std::span<std::byte> bytes) const;
  // Asks the system to drop its copy of these bytes, for measurements.
  void forget(uint64_t offset, uint64_t bytes) const;

 private:
  std::string name_;  // as it was given
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// Some bytes of a file. The file must outlive this.
struct FilePart {
  const InputFile& file;
  uint64_t offset, size;  // bytes

  // Fills `bytes` with those of the part from `first` on.
  void read(uint64_t first, std::span<std::byte> bytes) const { file.read(offset + first, bytes); }
};

// Keeps other processes out of a folder, which is made if it is missing: by a lock on the file
// "lock" in it, which the system lifts when the holder ends, however that happens. FileError names
// the holder. File systems without locks keep nobody out.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Whether the lock still keeps others out: not if somebody removed its file or the folder.
  bool is_held() const;

 private:
  void take();

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace rw
