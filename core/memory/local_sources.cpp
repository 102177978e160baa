#include "core/memory/local_sources.h"

#include <algorithm>
#include <cstring>
#include <map>
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

uint64_t FileContents::bytes() const {
  uint64_t sum = 0;
  for (const FileRun& run : runs) sum += run.bytes;
  return sum;
}

FileSource::Found::Found(const std::filesystem::path& given)
    : path(given), file(given), written(std::filesystem::last_write_time(given)) {}

void FileSource::Found::check_same() const {
  std::error_code gone;
  const auto now = std::filesystem::last_write_time(path, gone);
  check<FileError>(!gone && now == written, "stream",
                   "'{}' must stay as it is while weights are read from it, got one that was {}",
                   path.string(), gone ? "removed" : "changed");
}

FileSource::FileSource(std::vector<std::shared_ptr<Storage>> storages,
                       std::vector<FileContents> contents)
    : storages_(std::move(storages)), contents_(std::move(contents)) {
  std::map<std::filesystem::path, const Found*> opened;
  for (size_t i = 0; i < storages_.size(); ++i) {
    const Storage& storage = *storages_[i];
    const FileContents& from = contents_[i];
    check<ValueError>(from.bytes() == storage.bytes() &&
                          std::ranges::all_of(from.runs,
                                              [&](const FileRun& run) {
                                                return run.begin <= storage.bytes() &&
                                                       run.bytes <= storage.bytes() - run.begin;
                                              }),
                      "stream", "the runs of a file must be the {} bytes of a storage, got {}",
                      storage.bytes(), from.bytes());
    versions_.push_back(storage.version());
    if (storage.device().backend().is_dry()) continue;
    const Found*& file = opened[from.path];
    if (!file) file = &files_.emplace_back(from.path);
    file_of_.push_back(file);
    for (const FileRun& run : from.runs)
      check<FileError>(
          run.offset <= file->file.size() && run.bytes <= file->file.size() - run.offset, "stream",
          "'{}' must have {} bytes from {} on, got {} in all", from.path.string(), run.bytes,
          run.offset, file->file.size());
  }
}

// A third one takes the place of one that was expected for nothing.
void FileSource::expect(size_t i) {
  if (files_.empty()) return;
  if (std::ranges::any_of(coming_, [&](const auto& one) { return one.first == i; })) return;
  if (coming_.size() == 2) coming_.pop_front();
  coming_.emplace_back(i, std::async(std::launch::async, [this, i] { return read(i); }));
}

// Bytes that lie scattered in the storage are read in one piece where they are one in the file.
FileSource::Bytes FileSource::read(size_t i) const {
  const std::vector<FileRun>& runs = contents_[i].runs;
  const Found& from = *file_of_[i];
  from.check_same();
  Bytes found(contents_[i].bytes()), piece;
  for (size_t first = 0; first < runs.size();) {
    size_t last = first + 1;
    uint64_t bytes = runs[first].bytes;
    for (; last < runs.size() && runs[last].offset == runs[first].offset + bytes; ++last)
      bytes += runs[last].bytes;
    const std::span<std::byte> all = found;
    if (last == first + 1) {
      from.file.read(runs[first].offset, all.subspan(runs[first].begin, bytes));
    } else {
      piece.resize(bytes);
      from.file.read(runs[first].offset, piece);
      for (uint64_t at = 0; first < last; at += runs[first++].bytes)
        std::memcpy(found.data() + runs[first].begin, piece.data() + at, runs[first].bytes);
    }
    first = last;
  }
  from.check_same();
  return found;
}

void FileSource::fill(size_t i, Storage& target) {
  read_ += target.bytes();
  if (files_.empty()) return;
  const auto found = std::ranges::find(coming_, i, [](const auto& one) { return one.first; });
  std::future<Bytes> bytes = std::move(found->second);
  coming_.erase(found);
  target.device().restore(target, bytes.get().data());
}

void FileSource::before_leaving(size_t i) {
  check<ValueError>(storages_[i]->version() == versions_[i], "stream",
                    "weights {} that lie in a file must not be written to", storages_[i]->shape());
}

uint64_t FileSource::buffer_bytes() const {
  uint64_t most = 0;
  for (const auto& storage : storages_) most = std::max(most, storage->bytes());
  return 2 * most;
}

}  // namespace rw
