#include "data/images/photo_loader.h"

#include <cmath>

#include "core/base/error.h"
#include "data/base/parallel.h"
#include "data/base/random.h"
#include "data/images/image_file.h"
#include "data/images/resample.h"

namespace rw {

ChannelStatistics imagenet_statistics() {
  return {.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}};
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
  const std::span<const uint32_t> samples = order_.batch(epoch, index);
  const size_t values =
      3 * static_cast<size_t>(options_.image) * static_cast<size_t>(options_.image);
  Batch batch;
  batch.pixels.resize(samples.size() * values);
  for (const uint32_t i : samples) batch.labels.push_back(data_.labels[i]);
  parallel_for(samples.size(), options_.threads,
               [&](size_t i) { load(samples[i], epoch, &batch.pixels[i * values]); });
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
  const CropBox box = options_.augment ? random_crop(image.height, image.width, random)
                                       : centre_crop(image.height, image.width, shown);
  resample(image, box, size, mirrored, out);
  const auto& [mean, std] = options_.statistics;
  const auto values = 3 * static_cast<size_t>(size) * static_cast<size_t>(size);
  for (size_t v = 0; v < values; ++v) out[v] = (out[v] / 255 - mean[v % 3]) / std[v % 3];
}

}  // namespace rw
