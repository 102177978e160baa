// Vision transformer (Dosovitskiy et al. 2021). Parameters have torchvision's names.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../nn/layers.h"
#include "../nn/norm.h"
#include "../nn/transformer/transformer.h"

namespace rw {

// The sizes of a vision transformer. The default is ViT-B/16.
struct ViTConfig {
  int64_t image_size = 224, patch_size = 16;  // square images, cut into square patches
  // Elements per token, blocks, heads of each, and elements between a block's two linear layers.
  int64_t hidden = 768, layers = 12, heads = 12, mlp = 3072;
  int64_t classes = 1000;  // of the images
  float dropout = 0;       // of the attention's weights, and of what each part adds

  // tiny (192 wide, Touvron et al. 2021), base or large, with patches of 16. ValueError.
  static ViTConfig preset(const std::string& name);
};

// Images [N, image_size, image_size, 3] -> scores [N, classes].
class ViT : public Module {
 public:
  // ValueError for sizes that are not positive or do not go together.
  explicit ViT(const ViTConfig& config);
  Tensor forward(Tensor x) override;

 private:
  void add_block();

  ViTConfig config_;
  Tensor class_token_, positions_;  // [1, 1, hidden], [1, 1 + patches, hidden]
  Conv2d conv_proj_;
  std::vector<std::unique_ptr<TransformerEncoderLayer>> blocks_;
  LayerNorm ln_;
  Linear head_;
};

}  // namespace rw
