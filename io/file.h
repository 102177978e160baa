// Files that are written whole or not at all, and files read through a mapping.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace rw {

// Collects what is written in a temporary file beside `target`. commit() puts it in the target's
// place when it is safely stored: a reader, or a machine that loses power, finds the old file or
// all of the new one. Without commit() nothing changes. Makes the folder it needs. Throws
// FileError.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

  // The file is the temporary file of a writer, perhaps of one that was killed.
  static bool is_temporary(const std::filesystem::path& file);

 private:
  [[noreturn]] void fail_with_errno(const char* what) const;

  std::filesystem::path target_;
  std::string temporary_;  // empty once it is renamed
  int descriptor_ = -1;
};

// The bytes of a file, read by the system as they are touched. The file must not be cut short while
// it is mapped; replacing it, as AtomicFile does, is fine. Throws FileError.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace rw
