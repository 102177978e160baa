// Residual networks (He et al. 2015, 2016): ResNet-20 to -1202 for 32x32 images and ResNet-18 to
// -152 for ImageNet, in one class. The ImageNet models have torchvision's structure and names.
#pragma once

#include <optional>
#include <vector>

#include "../nn/layers.h"
#include "../nn/sequential.h"

namespace rw {

// The convolutions of a block. basic: 3x3 3x3; bottleneck: 1x1 3x3 1x1 with 4 times the width after
// it.
enum class BlockKind { basic, bottleneck };

// The form of a ResNet. ValueError unless there are as many depths as widths.
struct ResNetConfig {
  BlockKind block = BlockKind::basic;      // of all stages
  std::vector<int> depths = {3, 3, 3};     // blocks of each stage
  std::vector<int> widths = {16, 32, 64};  // channels of each stage's 3x3 convolutions
  // Before the blocks, with widths[0] channels: a convolution of 7x7 and stride 2 and a max pool,
  // or one of 3x3.
  bool large_stem = false;
  bool projection = false;      // shortcuts where the shape changes: by a 1x1 convolution, or by
                                // zero channels
  bool pre_activation = false;  // v2: norm and relu before each convolution
  bool norm = true;             // without it the convolutions have biases
  int norm_groups = 0;  // 0: BatchNorm; else GroupNorm of at most so many groups (Wu and He 2018)
  bool zero_init_residual = false;  // each block begins as the identity
  int classes = 10;                 // outputs
};

// One block: y = residual(x) + shortcut(x), with a relu after the sum in v1.
class ResidualBlock : public Module {
 public:
  ResidualBlock(int in, int width, int stride, const ResNetConfig& config);
  Tensor forward(Tensor x) override;

  // Channels of the output of a block of this width.
  static int out_channels(int width, BlockKind kind);

 private:
  Tensor residual(Tensor x);
  Tensor shortcut(Tensor x);
  Tensor activate(size_t step, Tensor x);

  std::vector<std::unique_ptr<Conv2d>> convs_;
  std::vector<std::unique_ptr<Module>> norms_;  // after each (v1) or before it (v2); null: none
  std::optional<Sequential> downsample_;
  int stride_, in_, out_;
  bool pre_activation_;
};

// Stem, stages of blocks, mean over the image, linear layer.
class ResNet : public Module {
 public:
  explicit ResNet(const ResNetConfig& config);

  Tensor forward(Tensor x) override;  // [N, H, W, 3] -> [N, classes]

  // As set_checkpoint(), in segments of `every` stages; 0: of blocks, as that one says.
  void set_stage_checkpoint(int every);

  const ResNetConfig& config() const { return config_; }  // as given to the constructor

 private:
  Tensor stem(Tensor x);

  ResNetConfig config_;
  Conv2d conv1_;
  std::unique_ptr<Module> norm_;  // null, or after the stem (v1) or after the last block (v2)
  std::vector<std::unique_ptr<Sequential>> stages_;
  std::vector<ResidualBlock*> blocks_;  // of all stages, in order
  Linear fc_;
  int stages_per_segment_ = 0;
};

// Configurations for 32x32 images, of depth 6k + 2 (basic) or 9k + 2 (bottleneck). Version 1 has
// padded shortcuts; version 2 is pre-activated, with projections. ValueError for other depths.
ResNetConfig resnet_cifar(int depth, int version = 1, BlockKind block = BlockKind::basic,
                          int classes = 10);
// Configurations for ImageNet: depth 18, 34, 50, 101 or 152 (ValueError).
ResNetConfig resnet_imagenet(int depth, int classes = 1000);

}  // namespace rw
