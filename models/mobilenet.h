// MobileNetV2 (Sandler et al. 2018): inverted residual blocks around depthwise convolutions.
// Parameters have torchvision's names.
#pragma once

#include <cstdint>
#include <vector>

#include "../nn/layers.h"
#include "../nn/sequential.h"

namespace rw {

// A sequence of blocks of equal width.
struct MobileNetStage {
  int64_t expansion, channels, blocks, stride;  // the first block has the stride, the others 1
};
// Sizes and classes. The default is the network of the paper for 224 x 224 images.
struct MobileNetConfig {
  int64_t classes = 1000;
  float width = 1;          // on all channels, which are rounded to multiples of 8
  int64_t stem_stride = 2;  // 1: for images of 32 x 32
  float dropout = 0.2f;     // before the classifier
  // The blocks, one sequence after another.
  std::vector<MobileNetStage> stages = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                        {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  int64_t stem = 32, head = 1280;  // channels of the first and of the last convolution
};

// Images [N, H, W, 3] -> scores [N, classes].
class MobileNetV2 : public Module {
 public:
  // ValueError for sizes that are not positive.
  explicit MobileNetV2(const MobileNetConfig& config = {});
  Tensor forward(Tensor x) override;

 private:
  Sequential features_, classifier_;
};

}  // namespace rw
