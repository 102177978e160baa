#include "rewind/data/loader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "rewind/core/base/checked.h"
#include "rewind/core/base/error.h"
#include "rewind/data/random.h"

namespace rw {

namespace {

// Everything below counts pixels of an image in int and trusts that they are there.
void check_data(const ImageDataset& data, std::string_view op) {
  const bool positive = data.height > 0 && data.width > 0 && data.channels > 0;
  const auto image = checked_mul(checked_mul(data.height, data.width), data.channels);
  check(positive && image, op, "images must have 1 to 2^31 - 1 values, got {} x {} x {}",
        data.height, data.width, data.channels);
  const auto all = checked_mul(data.size(), static_cast<size_t>(*image));
  check(all == data.pixels.size(), op, "{} images of {} x {} x {} must have as many pixels, got {}",
        data.size(), data.height, data.width, data.channels, data.pixels.size());
  check(data.size() <= std::numeric_limits<uint32_t>::max(), op,
        "there must be less than 2^32 images, got {}", data.size());
}

}  // namespace

Loader::Loader(const ImageDataset& data, LoaderOptions options)
    : data_(data), options_(std::move(options)) {
  check_data(data, "Loader");
  order_.resize(data.size());
  const auto channels = static_cast<size_t>(data.channels);
  if (options_.mean.empty()) options_.mean.assign(channels, 0);
  if (options_.std.empty()) options_.std.assign(channels, 1);
  constexpr int most_padding = 1 << 20;
  check(options_.batch_size > 0 && options_.crop_padding >= 0 &&
            options_.crop_padding <= most_padding,
        "Loader", "batch_size must be positive and crop_padding in [0, {}], got {} and {}",
        most_padding, options_.batch_size, options_.crop_padding);
  check(options_.mean.size() == channels && options_.std.size() == channels, "Loader",
        "mean and std must have one value per channel ({}), got {} and {}", channels,
        options_.mean.size(), options_.std.size());
  check(batches() > 0, "Loader", "there must be at least one batch of {}, got {} images",
        options_.batch_size, data.size());
  for (size_t c = 0; c < channels; ++c) {
    scale_.push_back(1 / (255 * options_.std[c]));
    shift_.push_back(-options_.mean[c] / options_.std[c]);
  }
}

int64_t Loader::batches() const {
  const auto n = static_cast<int64_t>(data_.size()), size = int64_t{options_.batch_size};
  return options_.drop_last ? n / size : (n + size - 1) / size;
}

Batch Loader::batch(int64_t epoch, int64_t index) {
  check(epoch >= 0 && index >= 0 && index < batches(), "Loader",
        "the batch index must be in [0, {}), got {} of epoch {}", batches(), index, epoch);
  order_for(epoch);
  const auto first = static_cast<size_t>(index) * static_cast<size_t>(options_.batch_size);
  const size_t last = std::min(first + static_cast<size_t>(options_.batch_size), data_.size());
  Batch batch;
  batch.pixels.resize((last - first) * data_.image_bytes());
  float* out = batch.pixels.data();
  for (size_t i = first; i < last; ++i) {
    append_image(order_[i], epoch, out);
    batch.labels.push_back(data_.labels[order_[i]]);
  }
  return batch;
}

// Fisher-Yates with the epoch's own stream.
void Loader::order_for(int64_t epoch) {
  if (ordered_epoch_ == epoch) return;
  ordered_epoch_ = epoch;
  std::iota(order_.begin(), order_.end(), 0);
  if (!options_.shuffle) return;
  DataRandom random(options_.seed, static_cast<uint64_t>(epoch));
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
}

// Augmentation is drawn per image and epoch. Padding is black, as the common recipes pad before
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
