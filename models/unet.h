// U-Net (Ronneberger et al. 2015) with normalisation and padded convolutions: each level on the way
// down passes its result to the same level on the way up. Parameters have the names of the
// widespread PyTorch-UNet.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../nn/conv.h"
#include "../nn/layers.h"
#include "../nn/sequential.h"

namespace rw {

// The sizes of a U-Net.
struct UNetConfig {
  int64_t channels = 3, classes = 2;  // of the images, and of each pixel
  int64_t width = 64;                 // channels at full size; each level down has twice as many
  int levels = 4;                     // how often the size is halved
};

// A 3x3 convolution, normalisation and ReLU, twice.
class DoubleConv : public Module {
 public:
  DoubleConv(int64_t in, int64_t out);
  Tensor forward(Tensor x) override { return double_conv_(std::move(x)); }

 private:
  Sequential double_conv_;
};

// Images [N, H, W, channels] -> scores [N, H, W, classes]; H and W are multiples of 2^levels
// (ShapeError).
class UNet : public Module {
 public:
  explicit UNet(const UNetConfig& config);  // ValueError for sizes that are not positive
  Tensor forward(Tensor x) override;

 private:
  // Half the size, then the convolutions.
  struct Down : Module {
    Down(int64_t in, int64_t out);
    Tensor forward(Tensor x) override { return maxpool_conv(std::move(x)); }
    Sequential maxpool_conv;
  };
  // Twice the size, `beside` joined, then the convolutions.
  struct Up : Module {
    explicit Up(int64_t in);
    Tensor forward(Tensor x, Tensor beside);
    ConvTranspose2d up;
    DoubleConv conv;
  };

  UNetConfig config_;
  DoubleConv inc_;
  std::vector<std::unique_ptr<Down>> downs_;
  std::vector<std::unique_ptr<Up>> ups_;
  Conv2d outc_;
};

}  // namespace rw
