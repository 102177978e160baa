// Batches of normalised images, each a pure function of (seed, epoch, index).
#pragma once

#include <cstdint>
#include <vector>

#include "../base/batch_order.h"
#include "../base/dataset.h"

namespace rw {

// How images become batches.
struct LoaderOptions {
  int batch_size = 128;    // images per batch
  bool shuffle = false;    // another order in every epoch
  bool drop_last = false;  // leave out a last batch that is not full
  int crop_padding = 0;    // random crop from the image padded with this many zero pixels
  bool flip = false;       // mirror half of the images
  std::vector<float> mean = {}, std = {};  // per channel, of pixels in [0, 1]; empty: 0 and 1
  uint64_t seed = 0;                       // of order, crops and mirrors
};

// Some images, normalised, with their labels.
struct Batch {
  std::vector<float> pixels;    // [size, height, width, channels]
  std::vector<int32_t> labels;  // [size]
  int64_t rows = 0;             // of a batch without data, for dry runs

  // The number of images.
  int64_t size() const { return labels.empty() ? rows : static_cast<int64_t>(labels.size()); }
};

// A source of batches: images in memory (Loader) or files of photographs (PhotoLoader).
class ImageBatches {
 public:
  virtual ~ImageBatches() = default;
  virtual int64_t batches() const = 0;  // per epoch
  virtual uint64_t seed() const = 0;    // of order and augmentation
  // Batch `index`, in [0, batches()), of an epoch from 0 on. ValueError otherwise.
  virtual Batch batch(int64_t epoch, int64_t index) = 0;
};

// Makes batches of a data set in memory, any at any time.
class Loader : public ImageBatches {
 public:
  // `data` must outlive the loader. Throws ValueError, also if its sizes contradict each other.
  Loader(const ImageDataset& data, LoaderOptions options);

  int64_t batches() const override { return order_.batches(); }
  uint64_t seed() const override { return options_.seed; }
  Batch batch(int64_t epoch, int64_t index) override;

  const ImageDataset& data() const { return data_; }  // the images that it loads

 private:
  void append_image(size_t i, int64_t epoch, float*& out);

  const ImageDataset& data_;
  LoaderOptions options_;
  BatchOrder order_;
  std::vector<float> scale_, shift_;  // of a byte, per channel
};

// `mean` and standard deviation (`std`) of each channel of pixels in [0, 1].
struct ChannelStatistics {
  std::vector<float> mean, std;
};
ChannelStatistics channel_statistics(const ImageDataset& data);

}  // namespace rw
