// Sources of streams on this machine.
#pragma once

#include <deque>
#include <filesystem>
#include <future>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "../files/file.h"
#include "stream.h"

namespace rw {

// Contents in host memory (Device::to_host), which the device copies beside its other work: those
// that were written go back there, others only come. OutOfMemory if the host has no room for them.
class HostSource : public StreamSource {
 public:
  explicit HostSource(std::vector<std::shared_ptr<Storage>> storages);

  bool fills_ahead() const override { return true; }
  void fill(size_t, Storage&) override {}  // its memory came with its contents
  void before_leaving(size_t i) override;

 private:
  std::vector<std::shared_ptr<Storage>> storages_;
};

// Bytes of a storage that lie side by side in a file.
struct FileRun {
  uint64_t offset = 0;  // in the file
  uint64_t begin = 0;   // in the storage
  uint64_t bytes = 0;   // of both
};
// The contents of a storage in a file, byte for byte.
struct FileContents {
  std::filesystem::path path;  // of the file
  std::vector<FileRun> runs;   // all bytes of the storage; in any order

  uint64_t bytes() const;  // the sum of the runs'
};

// Contents in files, which a thread reads while the device works, and which nobody writes: weights
// that are frozen. FileError if a file ends early or was changed by then, ValueError if a kernel
// has written to one. On a device that only predicts no file is read, and none needs to be there.
class FileSource : public StreamSource {
 public:
  // Storage i has contents[i]. FileError if a file is too short, ValueError for runs that are not
  // the bytes of the storage.
  FileSource(std::vector<std::shared_ptr<Storage>> storages, std::vector<FileContents> contents);

  void expect(size_t i) override;
  void fill(size_t i, Storage& target) override;
  void before_leaving(size_t i) override;

  uint64_t bytes_read() const { return read_; }  // of storages, so far
  uint64_t buffer_bytes() const;  // the most that what was read takes before the device has it

 private:
  using Bytes = std::vector<std::byte>;
  // A file as it was found.
  struct Found {
    explicit Found(const std::filesystem::path& path);
    void check_same() const;

    std::filesystem::path path;
    InputFile file;
    std::filesystem::file_time_type written;
  };
  Bytes read(size_t i) const;

  std::vector<std::shared_ptr<Storage>> storages_;
  std::vector<FileContents> contents_;
  std::vector<uint32_t> versions_;                            // of the storages, which stay
  std::list<Found> files_;                                    // none where nothing is read
  std::vector<const Found*> file_of_;                         // by storage
  std::deque<std::pair<size_t, std::future<Bytes>>> coming_;  // the newest last
  uint64_t read_ = 0;
};

}  // namespace rw
