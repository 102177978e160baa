// Layers without parameters that resize images, sequences and volumes (ops/network/vision.h).
#pragma once

#include "../ops/network/vision.h"
#include "module.h"

namespace rw {

// The op interpolate as a layer: Upsample({.scale_factor = {2}, .mode =
// InterpolationMode::linear}).
class Upsample : public Module {
 public:
  explicit Upsample(InterpolateOptions options) : options_(std::move(options)) {}
  Tensor forward(Tensor x) override { return interpolate(std::move(x), options_); }

 private:
  InterpolateOptions options_;
};

// [N, H, W, C r r] -> [N, H r, W r, C].
class PixelShuffle : public Module {
 public:
  explicit PixelShuffle(int64_t upscale) : upscale_(upscale) {}
  Tensor forward(Tensor x) override { return pixel_shuffle(std::move(x), upscale_); }

 private:
  int64_t upscale_;
};

// [N, H r, W r, C] -> [N, H, W, C r r].
class PixelUnshuffle : public Module {
 public:
  explicit PixelUnshuffle(int64_t downscale) : downscale_(downscale) {}
  Tensor forward(Tensor x) override { return pixel_unshuffle(std::move(x), downscale_); }

 private:
  int64_t downscale_;
};

// [N, H, W, C] -> [N, size.h, size.w, C]; {1, 1} keeps both axes, GlobalAvgPool does not.
class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Size2d size) : size_(size) {}
  Tensor forward(Tensor x) override { return adaptive_avg_pool2d(std::move(x), size_); }

 private:
  Size2d size_;
};

// The largest elements; otherwise like AdaptiveAvgPool2d.
class AdaptiveMaxPool2d : public Module {
 public:
  explicit AdaptiveMaxPool2d(Size2d size) : size_(size) {}
  Tensor forward(Tensor x) override { return adaptive_max_pool2d(std::move(x), size_); }

 private:
  Size2d size_;
};

// [N, L, C] -> [N, size, C].
class AdaptiveAvgPool1d : public Module {
 public:
  explicit AdaptiveAvgPool1d(int size) : size_(size) {}
  Tensor forward(Tensor x) override { return adaptive_avg_pool1d(std::move(x), size_); }

 private:
  int size_;
};

// The largest elements; otherwise like AdaptiveAvgPool1d.
class AdaptiveMaxPool1d : public Module {
 public:
  explicit AdaptiveMaxPool1d(int size) : size_(size) {}
  Tensor forward(Tensor x) override { return adaptive_max_pool1d(std::move(x), size_); }

 private:
  int size_;
};

// [N, L, C] -> [N, L', C]. Stride 0 means the kernel's.
class MaxPool1d : public Module {
 public:
  explicit MaxPool1d(int kernel, int stride = 0, int padding = 0, int dilation = 1)
      : options_{kernel, stride ? stride : kernel, padding, dilation} {}
  Tensor forward(Tensor x) override { return max_pool1d(std::move(x), options_); }

 private:
  Pool1dOptions options_;
};

// The mean of each window, otherwise like MaxPool1d. The padding counts as zeros, or not at all
// with count_include_pad = false.
class AvgPool1d : public Module {
 public:
  explicit AvgPool1d(int kernel, int stride = 0, int padding = 0, bool count_include_pad = true)
      : options_{kernel, stride ? stride : kernel, padding, 1, count_include_pad} {}
  Tensor forward(Tensor x) override { return avg_pool1d(std::move(x), options_); }

 private:
  Pool1dOptions options_;
};

}  // namespace rw
