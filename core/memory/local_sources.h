// Sources of streams on this machine.
#pragma once

#include <deque>
#include <filesystem>
#include <future>
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

// Contents in a file, byte for byte, which a thread reads while the device works, and which nobody
// writes: weights that are frozen. FileError if the file ends early by then.
class FileSource : public StreamSource {
 public:
  // The bytes of storage i begin at offsets[i] of the file. FileError if it is too short.
  FileSource(const std::filesystem::path& path,
             const std::vector<std::shared_ptr<Storage>>& storages,
             const std::vector<uint64_t>& offsets);

  void expect(size_t i) override;
  void fill(size_t i, Storage& target) override;

 private:
  using Bytes = std::vector<std::byte>;
  InputFile file_;
  std::vector<FilePart> parts_;
  std::deque<std::pair<size_t, std::future<Bytes>>> coming_;  // the newest last
};

}  // namespace rw
