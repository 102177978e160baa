// Labelled images on the host. This folder knows nothing of tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rw {

// Images of one size: their height, width, channels (1: grey, 3: RGB) and number of classes.
struct ImageDataset {
  int height = 0, width = 0, channels = 0, classes = 0;
  std::vector<uint8_t> pixels;           // [size, height, width, channels]
  std::vector<int32_t> labels;           // [size], each in [0, classes)
  std::vector<std::string> class_names;  // [classes], or empty

  size_t size() const { return labels.size(); }  // images
  // The bytes of one image.
  size_t image_bytes() const { return size_t(height) * size_t(width) * size_t(channels); }
  // The pixels of image i, [height, width, channels].
  std::span<const uint8_t> image(size_t i) const {
    return std::span(pixels).subspan(i * image_bytes(), image_bytes());
  }
};

// The part of a data set: train or test.
enum class Split { train, test };

// How many samples of a synthetic data set are made, to `train` and to `test` with, and their seed.
struct SyntheticSizes {
  int train = 10000, test = 2000;
  uint64_t seed = 1;
};

}  // namespace rw
