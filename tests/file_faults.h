// A disk that fails: file calls of this process, counted and refused in a scope.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>

#include "../core/base/error.h"
#include "../io/file_calls.h"

namespace rw::test {

struct Faults {
  int at = -1;                   // the call of this number, from 0, fails; -1: none
  int error = EIO;               // in this way
  bool for_good = false;         // and so do all that follow: what a process leaves that dies there
  size_t most_bytes = SIZE_MAX;  // that one write takes
  uint64_t capacity = UINT64_MAX;  // of the disk, in bytes
};

class FileFaults {
 public:
  explicit FileFaults(Faults faults = {}) : faults_(faults) {
    file_calls::set_hook([this](file_calls::Call call, size_t& bytes) { return ask(call, bytes); });
  }
  ~FileFaults() { file_calls::set_hook({}); }
  FileFaults(const FileFaults&) = delete;
  FileFaults& operator=(const FileFaults&) = delete;

  int calls() const { return calls_; }

 private:
  int ask(file_calls::Call call, size_t& bytes) {
    const int number = calls_++;
    if (faults_.at >= 0 && (number == faults_.at || (faults_.for_good && number > faults_.at)))
      return faults_.error;
    if (call != file_calls::Call::write) return 0;
    bytes = std::min(bytes, faults_.most_bytes);
    if (faults_.capacity == 0 && bytes > 0) return ENOSPC;
    bytes = std::min<uint64_t>(bytes, faults_.capacity);
    faults_.capacity -= bytes;
    return 0;
  }

  Faults faults_;
  int calls_ = 0;
};

// Whether `body` threw a FileError. Anything else comes through.
template <class Body>
bool fails(const Body& body) {
  try {
    body();
    return false;
  } catch (const FileError&) {
    return true;
  }
}

inline auto entries(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

// Open files of this process.
inline auto open_files() {
  return entries("/proc/self/fd");
}

}  // namespace rw::test
