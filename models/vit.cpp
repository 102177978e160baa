#include "models/vit.h"

#include <cmath>

#include "nn/init.h"
#include "nn/layer_stack.h"

namespace rw {

namespace {

const ViTConfig& checked(const ViTConfig& c) {
  check_positive("ViT", {{"image_size", c.image_size},
                         {"patch_size", c.patch_size},
                         {"hidden", c.hidden},
                         {"layers", c.layers},
                         {"heads", c.heads},
                         {"mlp", c.mlp},
                         {"classes", c.classes}});
  check(c.image_size % c.patch_size == 0, "ViT",
        "the patches must divide the images, got {} for {}", c.patch_size, c.image_size);
  return c;
}

Conv2dOptions patches_of(const ViTConfig& config) {
  return {.stride = static_cast<int>(config.patch_size)};
}

}  // namespace

ViTConfig ViTConfig::preset(const std::string& name) {
  if (name == "tiny") return {.hidden = 192, .heads = 3, .mlp = 768};
  if (name == "base") return {};
  check(name == "large", "ViT", "the preset must be tiny, base or large, got '{}'", name);
  return {.hidden = 1024, .layers = 24, .heads = 16, .mlp = 4096};
}

ViT::ViT(const ViTConfig& config)
    : config_(checked(config)),
      conv_proj_(3, config.hidden, static_cast<int>(config.patch_size), patches_of(config)),
      ln_(config.hidden, 1e-6f),
      head_(config.hidden, config.classes) {
  const int64_t side = config.image_size / config.patch_size;
  class_token_ = register_parameter("class_token", {1, 1, config.hidden});
  positions_ = register_parameter("encoder.pos_embedding", {1, 1 + side * side, config.hidden});
  init::zeros_(class_token_);
  init::normal_(positions_, 0, 0.02f);
  register_module("conv_proj", conv_proj_);
  const auto fan = static_cast<float>(3 * config.patch_size * config.patch_size);
  init::normal_(conv_proj_.weight, 0, std::sqrt(1 / fan));
  init::zeros_(conv_proj_.bias);
  for (int64_t i = 0; i < config.layers; ++i) add_block();
  register_module("encoder.ln", ln_);
  register_module("heads.head", head_);
  init::zeros_(head_.weight);
  init::zeros_(head_.bias);
}

// A block is PyTorch's pre-norm layer, with torchvision's names and initial values.
void ViT::add_block() {
  auto& block = *blocks_.emplace_back(
      std::make_unique<TransformerEncoderLayer>(TransformerOptions{.d_model = config_.hidden,
                                                                   .nhead = config_.heads,
                                                                   .dim_feedforward = config_.mlp,
                                                                   .dropout = config_.dropout,
                                                                   .activation = gelu,
                                                                   .layer_norm_eps = 1e-6f,
                                                                   .norm_first = true}));
  const std::string name = fmt::format("encoder.layers.encoder_layer_{}.", std::ssize(blocks_) - 1);
  register_module(name + "ln_1", block.norm1);
  register_module(name + "self_attention", block.self_attn);
  register_module(name + "ln_2", block.norm2);
  register_module(name + "mlp.0", block.linear1);
  register_module(name + "mlp.3", block.linear2);
  register_module(name + "dropout", block.dropout);
  for (const Linear* linear : {&block.linear1, &block.linear2}) {
    init::xavier_uniform_(linear->weight);
    init::normal_(linear->bias, 0, 1e-6f);
  }
}

Tensor ViT::forward(Tensor x) {
  check<ShapeError>(x.rank() == 4 && x.size(1) == config_.image_size &&
                        x.size(2) == config_.image_size && x.size(3) == 3,
                    "ViT", "needs images [N, {}, {}, 3], got {}", config_.image_size,
                    config_.image_size, x);
  const int64_t n = x.size(0), hidden = config_.hidden;
  x = flatten(conv_proj_(std::move(x)), 1, 2);
  Tensor first = expand(cast(class_token_, x.dtype()), Shape{n, 1, hidden});
  x = concat({std::move(first), std::move(x)}, 1);
  x = add(std::move(x), cast(positions_, x.dtype()));
  x = through_layers(blocks_, layers_per_segment(), std::move(x),
                     [](auto& block, Tensor in) { return block(std::move(in)); });
  return head_(ln_(select(std::move(x), 1, 0)));
}

}  // namespace rw
