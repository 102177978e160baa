#include "core/memory/local_sources.h"

#include <algorithm>

#include "core/base/context.h"
#include "core/base/thread_state.h"

namespace rw {

HostSource::HostSource(const std::vector<std::shared_ptr<Storage>>& storages) {
  const PurposeScope purpose(Purpose::parameter);
  const PlaceScope place(MemoryPlace::host);
  for (const auto& storage : storages) {
    Device& device = storage->device();
    copies_.push_back(device.allocate(storage->shape(), storage->dtype()));
    device.copy(*storage, 0, *copies_.back(), 0, storage->bytes());
  }
}

void HostSource::fill(size_t i, Storage& target) {
  target.device().restore(target, *copies_[i]);
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
