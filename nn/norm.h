// Normalising layers without running statistics. Initial values and names are PyTorch's.
#pragma once

#include "../ops/ops.h"
#include "module.h"

namespace rw {

// Normalises over the last axis, of `size` elements, as the op layer_norm (Ba et al. 2016).
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t size, float eps = 1e-5f, bool bias = true);
  Tensor forward(Tensor x) override { return layer_norm(std::move(x), weight, bias, eps_); }

  Tensor weight;  // [size]
  Tensor bias;    // [size], or undefined

 private:
  float eps_;
};

// Divides by the root of the mean square of the last axis, of `size` elements (Zhang and Sennrich
// 2019), and multiplies by weight + offset. Gemma's offset is 1.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(int64_t size, float eps = 1e-6f, float offset = 0);
  Tensor forward(Tensor x) override;

  Tensor weight;  // [size], at first 1 - offset

 private:
  float eps_, offset_;
};

// Normalises x [N, ..., channels]: the channels of each sample in `groups` runs (Wu and He 2018).
// ShapeError unless these divide the channels.
class GroupNorm : public Module {
 public:
  GroupNorm(int64_t groups, int64_t channels, float eps = 1e-5f);
  Tensor forward(Tensor x) override {
    return group_norm(std::move(x), groups_, weight, bias, eps_);
  }

  Tensor weight, bias;  // [channels]

 private:
  int64_t groups_;
  float eps_;
};

// Normalises x [N, H, W, channels]: each channel of each image by itself. By default without weight
// and bias (`affine`) and without running statistics, as in PyTorch.
class InstanceNorm2d : public Module {
 public:
  explicit InstanceNorm2d(int64_t channels, float eps = 1e-5f, bool affine = false);
  Tensor forward(Tensor x) override;

  Tensor weight, bias;  // [channels], or undefined

 private:
  int64_t channels_;
  float eps_;
};

}  // namespace rw
