#include "data/images/photo_loader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "data/base/parallel.h"
#include "data/base/random.h"
#include "data/images/image_file.h"
#include "data/images/resample.h"

namespace rw {

namespace {

// The least share of a photograph that a random crop has. It is magnified twice at most, since blur
// shows nothing: that is the usual 8 % of photographs 1.8 times as large as what the model sees,
// and more of smaller ones.
double least_share(const Image& image, int size) {
  constexpr double usual = 0.08;
  const double part = size / (2.0 * std::min(image.height, image.width));
  return std::clamp(part * part, usual, 1.0);
}

}  // namespace

ChannelStatistics imagenet_statistics() {
  return {.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}};
}

void PhotoFaults::add(const std::filesystem::path& file, const std::string& fault) {
  const std::lock_guard lock(mutex_);
  faults_.emplace(file, fault);
}

std::map<std::filesystem::path, std::string> PhotoFaults::all() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

PhotoLoader::PhotoLoader(const PhotoDataset& data, PhotoLoaderOptions options)
    : data_(data),
      options_(std::move(options)),
      order_({.samples = data.size(),
              .batch_size = options_.batch_size,
              .shuffle = options_.shuffle,
              .drop_last = options_.drop_last,
              .seed = options_.seed}) {
  constexpr int largest = 4096;
  check(options_.image > 0 && options_.image <= largest, "PhotoLoader",
        "image must be in [1, {}], got {}", largest, options_.image);
  check(data.labels.size() == data.size(), "PhotoLoader",
        "there must be a label for each of {} files, got {}", data.size(), data.labels.size());
  const auto& [mean, std] = options_.statistics;
  check(mean.size() == 3 && std.size() == 3 && std[0] > 0 && std[1] > 0 && std[2] > 0,
        "PhotoLoader", "mean and std must be of 3 channels and std positive, got {} and {} values",
        mean.size(), std.size());
}

Batch PhotoLoader::batch(int64_t epoch, int64_t index) {
  for (int64_t i = 0; i < batches(); ++i) {
    Batch batch = readable(epoch, i == 0 ? index : (index + i) % batches());
    if (batch.size() > 0) return batch;
  }
  fail<FileError>("PhotoLoader", "there must be photographs that can be decoded, got none of {}",
                  data_.size());
}

Batch PhotoLoader::readable(int64_t epoch, int64_t index) {
  const std::span<const uint32_t> samples = order_.batch(epoch, index);
  const size_t values =
      3 * static_cast<size_t>(options_.image) * static_cast<size_t>(options_.image);
  std::vector<float> pixels(samples.size() * values);
  std::vector<uint8_t> is_read(samples.size(), 1);
  parallel_for(samples.size(), options_.threads, [&](size_t i) {
    try {
      load(samples[i], epoch, &pixels[i * values]);
    } catch (const FileError& error) {
      if (!options_.faults) throw;
      options_.faults->add(data_.files[samples[i]], error.what());
      is_read[i] = 0;
    }
  });
  Batch batch;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!is_read[i]) continue;
    const size_t at = batch.labels.size();
    if (at < i) std::copy_n(&pixels[i * values], values, &pixels[at * values]);
    batch.labels.push_back(data_.labels[samples[i]]);
  }
  pixels.resize(batch.labels.size() * values);
  batch.pixels = std::move(pixels);
  return batch;
}

// How much a JPEG may shrink while it is decoded: the smallest of random crops, and the middle,
// still have more pixels than the model sees.
void PhotoLoader::load(size_t i, int64_t epoch, float* out) const {
  constexpr double shown = 224.0 / 256;
  const int size = options_.image;
  const Image image = load_image(data_.files[i], (options_.augment ? 4 : 2) * size);
  DataRandom random(options_.seed, static_cast<uint64_t>(epoch), i + 1);
  const bool mirrored = options_.augment && random.below(2) == 1;
  const CropBox box = options_.augment
                          ? random_crop(image.height, image.width, random, least_share(image, size))
                          : centre_crop(image.height, image.width, shown);
  resample(image, box, size, mirrored, out);
  const auto& [mean, std] = options_.statistics;
  const auto values = 3 * static_cast<size_t>(size) * static_cast<size_t>(size);
  for (size_t v = 0; v < values; ++v) out[v] = (out[v] / 255 - mean[v % 3]) / std[v % 3];
}

}  // namespace rw
