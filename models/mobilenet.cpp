#include "models/mobilenet.h"

#include <algorithm>
#include <cmath>

#include "nn/init.h"

namespace rw {

namespace {

// Rounds to a multiple of 8 that is at least 90 % of the value (torchvision's _make_divisible).
int64_t channels_of(int64_t channels, float width) {
  const float wanted = static_cast<float>(channels) * width;
  const auto rounded = std::max<int64_t>(8, static_cast<int64_t>(wanted + 4) / 8 * 8);
  return static_cast<float>(rounded) < 0.9f * wanted ? rounded + 8 : rounded;
}

void add_conv(Sequential& target, int64_t in, int64_t out, int kernel, int64_t stride,
              int64_t groups) {
  const auto& conv = target.emplace<Conv2d>(in, out, kernel,
                                            Conv2dOptions{.stride = static_cast<int>(stride),
                                                          .padding = kernel / 2,
                                                          .groups = static_cast<int>(groups),
                                                          .bias = false});
  init::kaiming_normal_(conv.weight, init::FanMode::out);
  target.emplace<BatchNorm2d>(out);
}

// A convolution, its normalisation and ReLU6 as one child.
void add_step(Sequential& target, int64_t in, int64_t out, int kernel, int64_t stride = 1,
              int64_t groups = 1) {
  auto& step = target.emplace<Sequential>();
  add_conv(step, in, out, kernel, stride, groups);
  step.emplace<ReLU6>();
}

// A 1x1 convolution to expansion times the channels, a depthwise 3x3 one, and a 1x1 one back
// without an activation; x is added if the shape stays.
class InvertedResidual : public Module {
 public:
  InvertedResidual(int64_t in, int64_t out, int64_t stride, int64_t expansion)
      : adds_(stride == 1 && in == out) {
    check_positive("InvertedResidual",
                   {{"in", in}, {"out", out}, {"stride", stride}, {"expansion", expansion}});
    const int64_t inner = in * expansion;
    if (expansion != 1) add_step(conv_, in, inner, 1);
    add_step(conv_, inner, inner, 3, stride, inner);
    add_conv(conv_, inner, out, 1, 1, 1);
    register_module("conv", conv_);
  }
  Tensor forward(Tensor x) override {
    if (!adds_) return conv_(std::move(x));
    Tensor y = conv_(x);
    return add(std::move(y), std::move(x));
  }

 private:
  Sequential conv_;
  bool adds_;
};

}  // namespace

MobileNetV2::MobileNetV2(const MobileNetConfig& config) {
  check_positive("MobileNetV2", {{"classes", config.classes}, {"stem_stride", config.stem_stride}});
  int64_t channels = channels_of(config.stem, config.width);
  add_step(features_, 3, channels, 3, config.stem_stride);
  for (const auto& [expansion, width, blocks, stride] : config.stages) {
    const int64_t out = channels_of(width, config.width);
    for (int64_t i = 0; i < blocks; ++i) {
      features_.emplace<InvertedResidual>(channels, out, i == 0 ? stride : 1, expansion);
      channels = out;
    }
  }
  const int64_t head = channels_of(config.head, std::max(config.width, 1.0f));
  add_step(features_, channels, head, 1);
  classifier_.emplace<Dropout>(config.dropout);
  auto& last = classifier_.emplace<Linear>(head, config.classes);
  init::normal_(last.weight, 0, 0.01f);
  init::zeros_(last.bias);
  register_module("features", features_);
  register_module("classifier", classifier_);
}

Tensor MobileNetV2::forward(Tensor x) {
  check<ShapeError>(x.rank() == 4 && x.size(3) == 3, "MobileNetV2",
                    "needs images [N, H, W, 3], got {}", x);
  return classifier_(mean(features_(std::move(x)), {1, 2}));
}

}  // namespace rw
