#include "models/unet.h"

#include "nn/sequential.h"

namespace rw {

namespace {

const UNetConfig& checked(const UNetConfig& config) {
  check_positive("UNet", {{"channels", config.channels},
                          {"classes", config.classes},
                          {"width", config.width},
                          {"levels", config.levels}});
  return config;
}

// A 3x3 convolution, normalisation and ReLU, twice.
class DoubleConv : public Module {
 public:
  DoubleConv(int64_t in, int64_t out) {
    for (int i = 0; i < 2; ++i) {
      double_conv_.emplace<Conv2d>(i == 0 ? in : out, out, 3,
                                   Conv2dOptions{.padding = 1, .bias = false});
      double_conv_.emplace<BatchNorm2d>(out);
      double_conv_.emplace<ReLU>();
    }
    register_module("double_conv", double_conv_);
  }
  Tensor forward(Tensor x) override { return double_conv_(std::move(x)); }

 private:
  Sequential double_conv_;
};

// Half the size, then the convolutions.
class Down : public Module {
 public:
  Down(int64_t in, int64_t out) {
    maxpool_conv_.emplace<MaxPool2d>(2);
    maxpool_conv_.emplace<DoubleConv>(in, out);
    register_module("maxpool_conv", maxpool_conv_);
  }
  Tensor forward(Tensor x) override { return maxpool_conv_(std::move(x)); }

 private:
  Sequential maxpool_conv_;
};

}  // namespace

// Twice the size, `beside` joined, then the convolutions.
class UNet::Up : public Module {
 public:
  explicit Up(int64_t in) : up_(in, in / 2, 2, {.stride = 2}), conv_(in, in / 2) {
    register_module("up", up_);
    register_module("conv", conv_);
  }
  Tensor forward(Tensor x, Tensor beside) {
    x = up_.forward(std::move(x));
    return conv_(concat({std::move(beside), std::move(x)}, 3));
  }

 private:
  ConvTranspose2d up_;
  DoubleConv conv_;
};

UNet::UNet(const UNetConfig& config)
    : config_(checked(config)),
      inc_(std::make_unique<DoubleConv>(config.channels, config.width)),
      outc_(config.width, config.classes, 1) {
  register_module("inc", *inc_);
  int64_t channels = config.width;
  for (int i = 1; i <= config.levels; ++i, channels *= 2) {
    downs_.push_back(std::make_unique<Down>(channels, 2 * channels));
    register_module(fmt::format("down{}", i), *downs_.back());
  }
  for (int i = 1; i <= config.levels; ++i, channels /= 2) {
    ups_.push_back(std::make_unique<Up>(channels));
    register_module(fmt::format("up{}", i), *ups_.back());
  }
  register_module("outc.conv", outc_);
}

UNet::~UNet() = default;

Tensor UNet::forward(Tensor x) {
  const int64_t step = int64_t{1} << config_.levels;
  check<ShapeError>(x.rank() == 4 && x.size(3) == config_.channels && x.size(1) % step == 0 &&
                        x.size(2) % step == 0,
                    "UNet", "needs images [N, H, W, {}] with H and W multiples of {}, got {}",
                    config_.channels, step, x);
  std::vector<Tensor> levels;
  x = (*inc_)(std::move(x));
  for (const auto& down : downs_) {
    levels.push_back(x);
    x = (*down)(std::move(x));
  }
  for (const auto& up : ups_) {
    Tensor beside = std::move(levels.back());
    levels.pop_back();
    x = up->forward(std::move(x), std::move(beside));
  }
  return outc_(std::move(x));
}

}  // namespace rw
