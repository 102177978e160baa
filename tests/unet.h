// A small U-Net: odd sizes on the way down, nearest-neighbour upsampling made of reshapes and an
// expand, crops, and skip connections that are concatenated.
#pragma once

#include <vector>

#include "../core/autograd/checkpoint.h"
#include "../core/ops/ops.h"

namespace rw::test {

class UNet {
 public:
  explicit UNet(int64_t width) {
    int64_t in = 3;
    for (int level = 0; level <= depth; ++level) in = add(in, width << level);
    for (int level = depth - 1; level >= 0; --level)
      in = add(in + (width << level), width << level);
    add(in, 2);
  }

  // x [N, H, W, 3] -> [N, H, W, 2]. `marks`: bit i makes a segment of block i.
  Tensor forward(Tensor x, uint32_t marks = 0) const {
    std::vector<Tensor> skips;
    size_t layer = 0;
    for (int level = 0; level < depth; ++level) {
      x = block(std::move(x), layer++, marks);
      skips.push_back(x);
      x = max_pool2d(x, Pool2dOptions{2, 2});
    }
    x = block(std::move(x), layer++, marks);
    for (int level = depth - 1; level >= 0; --level) {
      const Tensor skip = std::move(skips[static_cast<size_t>(level)]);
      x = block(concat({grown(x, skip.size(1), skip.size(2)), skip}, -1), layer++, marks);
    }
    return conv2d(x, weights_[2 * layer], Conv2dOptions{.padding = 1});
  }

  static constexpr int blocks = 7;
  std::vector<Tensor>& weights() { return weights_; }

 private:
  static constexpr int depth = 3;

  int64_t add(int64_t in, int64_t out) {
    const bool last = out == 2;
    weights_.push_back(rand({out, 3, 3, in}, -0.1f, 0.1f).set_requires_grad());
    if (!last) weights_.push_back(rand({out, 3, 3, out}, -0.1f, 0.1f).set_requires_grad());
    return out;
  }

  Tensor block(Tensor x, size_t layer, uint32_t marks) const {
    const CheckpointScope scope(marks >> layer & 1);
    for (const size_t i : {2 * layer, 2 * layer + 1})
      x = relu(layer_norm(conv2d(x, weights_[i], Conv2dOptions{.padding = 1})));
    return x;
  }

  // Twice as high and wide, the last row and column again where the size asked for is odd.
  static Tensor grown(const Tensor& x, int64_t height, int64_t width) {
    const int64_t n = x.size(0), h = x.size(1), w = x.size(2), c = x.size(3);
    Tensor y =
        reshape(expand(reshape(x, {n, h, 1, w, 1, c}), {n, h, 2, w, 2, c}), {n, 2 * h, 2 * w, c});
    return pad(y, {0, 0, 0, 0}, {0, height - 2 * h, width - 2 * w, 0});
  }

  std::vector<Tensor> weights_;
};

}  // namespace rw::test
