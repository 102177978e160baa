// U-Net (Ronneberger et al. 2015) with normalisation and padded convolutions: each level on the way
// down passes its result to the same level on the way up. Parameters have the names of the
// widespread PyTorch-UNet.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../nn/conv.h"
#include "../nn/layers.h"

namespace rw {

// The sizes of a U-Net.
struct UNetConfig {
  int64_t channels = 3, classes = 2;  // of the images, and of each pixel
  int64_t width = 64;                 // channels at full size; each level down has twice as many
  int levels = 4;                     // how often the size is halved
};

// Images [N, H, W, channels] -> scores [N, H, W, classes]; H and W are multiples of 2^levels
// (ShapeError).
class UNet : public Module {
 public:
  explicit UNet(const UNetConfig& config);  // ValueError for sizes that are not positive
  ~UNet() override;
  Tensor forward(Tensor x) override;

 private:
  class Up;

  UNetConfig config_;
  std::unique_ptr<Module> inc_;
  std::vector<std::unique_ptr<Module>> downs_;
  std::vector<std::unique_ptr<Up>> ups_;
  Conv2d outc_;
};

}  // namespace rw
