#include "nn/layers.h"

#include <cmath>

#include "nn/init.h"

namespace rw {

namespace {

// PyTorch's default for linear and convolution: both uniform within 1 / sqrt(fan in).
void init_weight_and_bias(const Tensor& weight, const Tensor& bias) {
  const float bound = 1 / std::sqrt(static_cast<float>(init::fans(weight.shape()).in));
  init::uniform_(weight, -bound, bound);
  if (bias) init::uniform_(bias, -bound, bound);
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool has_bias) {
  weight = register_parameter("weight", {out, in});
  if (has_bias) bias = register_parameter("bias", {out});
  init_weight_and_bias(weight, bias);
}

Tensor Linear::forward(Tensor x) {
  return linear(std::move(x), weight, bias);
}

Conv2d::Conv2d(int64_t in, int64_t out, int kernel, const ConvOptions& options)
    : options_(
          Conv2dOptions::make(options.stride, options.padding, options.dilation, options.groups)) {
  check(options.groups > 0 && in % options.groups == 0 && out % options.groups == 0, "Conv2d",
        "groups must divide the channels, got {} groups for {} -> {}", options.groups, in, out);
  weight = register_parameter("weight", {out, kernel, kernel, in / options.groups});
  if (options.bias) bias = register_parameter("bias", {out});
  init_weight_and_bias(weight, bias);
}

Tensor Conv2d::forward(Tensor x) {
  Tensor y = conv2d(std::move(x), weight, options_);
  if (!bias) return y;
  Tensor b = cast(bias, y.dtype());
  return add(std::move(y), std::move(b));
}

BatchNorm2d::BatchNorm2d(int64_t channels, float eps, float momentum)
    : eps_(eps), momentum_(momentum) {
  weight = register_parameter("weight", {channels});
  bias = register_parameter("bias", {channels});
  running_mean = register_buffer("running_mean", {channels}, 0);
  running_var = register_buffer("running_var", {channels}, 1);
  init::ones_(weight);
  init::zeros_(bias);
}

Tensor BatchNorm2d::forward(Tensor x) {
  if (!is_training())
    return batch_norm_with(std::move(x), running_mean, running_var, weight, bias, eps_);
  const int64_t count = x.numel() / x.size(-1);
  check<ShapeError>(count > 1, "BatchNorm2d",
                    "training needs more than one value per channel, got x {}", x.str());
  BatchNormResult result = batch_norm(std::move(x), weight, bias, eps_);
  update_running(result.mean, result.var, count);
  return std::move(result.y);
}

// Side effects stay off the tape: replay must not see them.
void BatchNorm2d::update_running(const Tensor& mean, const Tensor& var, int64_t count) {
  const NoGrad guard;
  const float unbias = static_cast<float>(count) / static_cast<float>(count - 1);
  accumulate(sub(mean, running_mean), running_mean, momentum_);
  accumulate(sub(affine(var, unbias, 0), running_var), running_var, momentum_);
}

Dropout::Dropout(float p, GeneratorRef generator) : p_(p), generator_(generator) {
  check(p >= 0 && p < 1, "Dropout", "the probability must be in [0, 1), got {}", p);
}

Tensor Dropout::forward(Tensor x) {
  if (!is_training() || p_ == 0) return x;
  return dropout(std::move(x), p_, generator_.get());
}

Embedding::Embedding(int64_t rows, int64_t dimension) {
  weight = register_parameter("weight", {rows, dimension});
  init::normal_(weight, 0, 1);
}

Tensor Embedding::forward(Tensor index) {
  return embedding(weight, std::move(index));
}

}  // namespace rw
