#include "core/memory/local_sources.h"

#include <algorithm>
#include <utility>

namespace rw {

HostSource::HostSource(std::vector<std::shared_ptr<Storage>> storages)
    : storages_(std::move(storages)) {
  for (const auto& storage : storages_) storage->keep_host_copy();
}

void HostSource::before_leaving(size_t i) {
  Storage& storage = *storages_[i];
  check<OutOfMemory>(storage.device().to_host(storage), "stream",
                     "host memory must have room for {} {} ({}), got none", name(storage.dtype()),
                     storage.shape(), format_bytes(storage.bytes()));
}

FileSource::FileSource(const std::filesystem::path& path,
                       const std::vector<std::shared_ptr<Storage>>& storages,
                       const std::vector<uint64_t>& offsets)
    : file_(path) {
  for (size_t i = 0; i < storages.size(); ++i) {
    const uint64_t bytes = storages[i]->bytes();
    check<FileError>(offsets[i] <= file_.size() && bytes <= file_.size() - offsets[i], "stream",
                     "'{}' must have {} bytes from {} on, got {} in all", path.string(), bytes,
                     offsets[i], file_.size());
    parts_.push_back({file_, offsets[i], bytes});
  }
}

// A third one takes the place of one that was expected for nothing.
void FileSource::expect(size_t i) {
  if (std::ranges::any_of(coming_, [&](const auto& one) { return one.first == i; })) return;
  if (coming_.size() == 2) coming_.pop_front();
  coming_.emplace_back(i, std::async(std::launch::async, [&part = parts_[i]] {
                         Bytes found(part.size);
                         part.read(0, found);
                         return found;
                       }));
}

void FileSource::fill(size_t i, Storage& target) {
  const auto found = std::ranges::find(coming_, i, [](const auto& one) { return one.first; });
  std::future<Bytes> bytes = std::move(found->second);
  coming_.erase(found);
  target.device().restore(target, bytes.get().data());
}

}  // namespace rw
