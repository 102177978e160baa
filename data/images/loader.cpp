#include "data/images/loader.h"

#include <algorithm>
#include <cmath>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "data/base/random.h"

namespace rw {

namespace {

// All code below counts pixels of an image in int and relies on their presence.
void check_data(const ImageDataset& data, std::string_view op) {
  const bool positive = data.height > 0 && data.width > 0 && data.channels > 0;
  const auto image = checked_mul(checked_mul(data.height, data.width), data.channels);
  check(positive && image, op, "images must have 1 to 2^31 - 1 values, got {} x {} x {}",
        data.height, data.width, data.channels);
  const auto all = checked_mul(data.size(), static_cast<size_t>(*image));
  check(all == data.pixels.size(), op, "{} images of {} x {} x {} must have as many pixels, got {}",
        data.size(), data.height, data.width, data.channels, data.pixels.size());
}

}  // namespace

Loader::Loader(const ImageDataset& data, LoaderOptions options)
    : data_(data),
      options_(std::move(options)),
      order_({.samples = data.size(),
              .batch_size = options_.batch_size,
              .shuffle = options_.shuffle,
              .drop_last = options_.drop_last,
              .seed = options_.seed}) {
  check_data(data, "Loader");
  const auto channels = static_cast<size_t>(data.channels);
  if (options_.mean.empty()) options_.mean.assign(channels, 0);
  if (options_.std.empty()) options_.std.assign(channels, 1);
  constexpr int most_padding = 1 << 20;
  check(options_.crop_padding >= 0 && options_.crop_padding <= most_padding, "Loader",
        "crop_padding must be in [0, {}], got {}", most_padding, options_.crop_padding);
  check(options_.mean.size() == channels && options_.std.size() == channels, "Loader",
        "mean and std must have one value per channel ({}), got {} and {}", channels,
        options_.mean.size(), options_.std.size());
  for (size_t c = 0; c < channels; ++c) {
    scale_.push_back(1 / (255 * options_.std[c]));
    shift_.push_back(-options_.mean[c] / options_.std[c]);
  }
}

Batch Loader::batch(int64_t epoch, int64_t index) {
  const std::span<const uint32_t> samples = order_.batch(epoch, index);
  Batch batch;
  batch.pixels.resize(samples.size() * data_.image_bytes());
  float* out = batch.pixels.data();
  for (const uint32_t i : samples) {
    append_image(i, epoch, out);
    batch.labels.push_back(data_.labels[i]);
  }
  return batch;
}

// Augmentation is drawn per image and epoch. Padding is black, since the common recipes pad before
// they normalise.
void Loader::append_image(size_t i, int64_t epoch, float*& out) {
  DataRandom random(options_.seed, static_cast<uint64_t>(epoch), i + 1);
  const int pad = options_.crop_padding;
  const int dy = static_cast<int>(random.below(static_cast<uint64_t>(2 * pad + 1))) - pad;
  const int dx = static_cast<int>(random.below(static_cast<uint64_t>(2 * pad + 1))) - pad;
  const bool mirrored = options_.flip && random.below(2) == 1;
  const uint8_t* image = data_.image(i).data();
  for (int y = 0; y < data_.height; ++y) {
    for (int x = 0; x < data_.width; ++x) {
      const int from_y = y + dy, from_x = (mirrored ? data_.width - 1 - x : x) + dx;
      const bool inside =
          from_y >= 0 && from_y < data_.height && from_x >= 0 && from_x < data_.width;
      const int pixel = (from_y * data_.width + from_x) * data_.channels;
      for (int c = 0; c < data_.channels; ++c)
        *out++ = (inside ? static_cast<float>(image[pixel + c]) * scale_[c] : 0.0f) + shift_[c];
    }
  }
}

ChannelStatistics channel_statistics(const ImageDataset& data) {
  check_data(data, "channel_statistics");
  const auto channels = static_cast<size_t>(data.channels);
  std::vector<double> sum(channels), squares(channels);
  for (size_t i = 0; i < data.pixels.size(); ++i) {
    const double v = data.pixels[i] / 255.0;
    sum[i % channels] += v;
    squares[i % channels] += v * v;
  }
  const double n = std::max<double>(1, static_cast<double>(data.pixels.size() / channels));
  ChannelStatistics result;
  for (size_t c = 0; c < channels; ++c) {
    const double mean = sum[c] / n;
    result.mean.push_back(static_cast<float>(mean));
    result.std.push_back(
        static_cast<float>(std::sqrt(std::max(squares[c] / n - mean * mean, 1e-6))));
  }
  return result;
}

}  // namespace rw
