#include "data/images/photo_check.h"

#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <span>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/files/cache.h"
#include "data/base/parallel.h"

namespace rw {

namespace {

// Headers that were read before, by files as they are now.
class KnownHeaders {
 public:
  explicit KnownHeaders(const std::string& cache) : cache_(cache) {
    if (cache.empty()) return;
    const std::vector<std::byte> bytes = read_cache(cache);
    if (bytes.size() % sizeof(Row) != 0) return;
    for (size_t at = 0; at < bytes.size(); at += sizeof(Row)) {
      Row row;
      std::memcpy(&row, &bytes[at], sizeof row);
      known_.emplace(row.file, ImageHeader{{row.height, row.width}, row.hash});
    }
  }
  // Null: it is not known.
  const ImageHeader* find(uint64_t file) const {
    const auto found = known_.find(file);
    return file == 0 || found == known_.end() ? nullptr : &found->second;
  }
  // Keeps the headers of these files and no others.
  void keep(std::span<const uint64_t> files, std::span<const ImageHeader> headers) const {
    std::vector<Row> rows;
    size_t old = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      if (files[i] == 0 || headers[i].size.height == 0) continue;
      rows.push_back({files[i], headers[i].hash, headers[i].size.height, headers[i].size.width});
      old += known_.contains(files[i]);
    }
    if (!cache_.empty() && (old < rows.size() || old < known_.size()))
      write_cache(cache_, std::as_bytes(std::span(rows)));
  }

 private:
  struct Row {
    uint64_t file, hash;
    int32_t height, width;
  };
  const std::string cache_;
  std::unordered_map<uint64_t, ImageHeader> known_;
};

// A hash of its place, its size and the times of its last changes; 0 if it cannot be looked at.
uint64_t state_of(const std::filesystem::path& file) {
  struct stat about = {};
  if (stat(file.c_str(), &about) != 0) return 0;
  uint64_t hash = fnv1a(std::as_bytes(std::span(std::filesystem::absolute(file).native())));
  for (const auto part : {about.st_size, about.st_mtim.tv_sec, about.st_mtim.tv_nsec,
                          about.st_ctim.tv_sec, about.st_ctim.tv_nsec})
    hash = splitmix64(fnv1a(hash, static_cast<uint64_t>(part)));
  return hash;
}

// Leaves the photographs without a fault, in order.
PhotoDataset good_ones(const PhotoDataset& data, std::span<const std::string> faults) {
  PhotoDataset good{.class_names = data.class_names, .notes = data.notes};
  for (size_t i = 0; i < data.size(); ++i) {
    if (!faults[i].empty()) continue;
    good.files.push_back(data.files[i]);
    good.labels.push_back(data.labels[i]);
    good.headers.push_back(data.headers[i]);
  }
  return good;
}

}  // namespace

std::vector<std::string> check_photos(PhotoDataset& data, const PhotoCheck& options) {
  const KnownHeaders known(options.cache);
  std::vector<std::string> faults(data.size());
  std::vector<uint64_t> states(data.size());
  data.headers.assign(data.size(), {});
  std::atomic<size_t> done = 0;
  parallel_for(data.size(), 0, [&](size_t i) {
    if (!options.cache.empty()) states[i] = state_of(data.files[i]);
    try {
      const ImageHeader* const before = known.find(states[i]);
      data.headers[i] = before ? *before : load_image_header(data.files[i]);
      if (options.decodes) load_image(data.files[i], 1);
    } catch (const FileError& error) {
      if (options.bad == BadPhotos::are_refused) throw;
      faults[i] = error.what();
    }
    if (options.progress) options.progress(++done);
  });
  known.keep(states, data.headers);
  PhotoDataset good = good_ones(data, faults);
  std::vector<bool> has_photos(data.class_names.size());
  for (const int32_t label : good.labels) has_photos.at(static_cast<size_t>(label)) = true;
  std::vector<std::string> found;
  for (size_t i = 0; i < data.size(); ++i) {
    if (faults[i].empty()) continue;
    const auto label = static_cast<size_t>(data.labels[i]);
    check<FileError>(has_photos[label], "check_photos",
                     "the class '{}' must have a photograph that can be read, got none: {}",
                     data.class_names[label], faults[i]);
    found.push_back(std::move(faults[i]));
  }
  data = std::move(good);
  return found;
}

}  // namespace rw
