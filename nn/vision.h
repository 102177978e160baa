// Layers without parameters that resize images, sequences and volumes (ops/network/vision.h).
#pragma once

#include "../ops/network/vision.h"
#include "activations.h"
#include "module.h"

namespace rw {

// The op interpolate as a layer: Upsample({.scale_factor = {2}, .mode =
// InterpolationMode::linear}).
using Upsample = OpModule<interpolate, InterpolateOptions>;
// [N, H, W, C r r] -> [N, H r, W r, C].
using PixelShuffle = OpModule<pixel_shuffle, int64_t>;
// [N, H r, W r, C] -> [N, H, W, C r r].
using PixelUnshuffle = OpModule<pixel_unshuffle, int64_t>;
// [N, H, W, C] -> [N, size.h, size.w, C]; {1, 1} keeps both axes, GlobalAvgPool does not.
using AdaptiveAvgPool2d = OpModule<adaptive_avg_pool2d, Size2d>;
// The largest elements; otherwise like AdaptiveAvgPool2d.
using AdaptiveMaxPool2d = OpModule<adaptive_max_pool2d, Size2d>;
// [N, L, C] -> [N, size, C].
using AdaptiveAvgPool1d = OpModule<adaptive_avg_pool1d, int>;
// The largest elements; otherwise like AdaptiveAvgPool1d.
using AdaptiveMaxPool1d = OpModule<adaptive_max_pool1d, int>;

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
