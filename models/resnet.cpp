#include "models/resnet.h"

#include <numeric>

#include "nn/init.h"
#include "nn/layer_stack.h"
#include "nn/norm.h"

namespace rw {

namespace {

// He initialisation: normal, by fan out. A bias, if there is one, starts at zero.
void init_conv(const Conv2d& conv) {
  init::kaiming_normal_(conv.weight, init::FanMode::out);
  if (conv.bias) init::zeros_(conv.bias);
}

const ResNetConfig& checked(const ResNetConfig& config) {
  check(!config.widths.empty() && config.depths.size() == config.widths.size(), "ResNet",
        "each stage needs a depth and a width, got {} depths and {} widths", config.depths.size(),
        config.widths.size());
  check(config.norm_groups >= 0, "ResNet", "norm_groups must be >= 0, got {}", config.norm_groups);
  return config;
}

// A norm of `channels` channels; null if the configuration has none.
std::unique_ptr<Module> make_norm(int channels, const ResNetConfig& config) {
  if (!config.norm) return nullptr;
  if (config.norm_groups == 0) return std::make_unique<BatchNorm2d>(channels);
  return std::make_unique<GroupNorm>(std::gcd(config.norm_groups, channels), channels);
}

}  // namespace

int ResidualBlock::out_channels(int width, BlockKind kind) {
  return kind == BlockKind::basic ? width : 4 * width;
}

ResidualBlock::ResidualBlock(int in, int width, int stride, const ResNetConfig& config)
    : stride_(stride),
      in_(in),
      out_(out_channels(width, config.block)),
      pre_activation_(config.pre_activation) {
  struct Size {
    int in, out, kernel, stride;
  };
  const std::vector<Size> sizes =
      config.block == BlockKind::basic
          ? std::vector<Size>{{in, width, 3, stride}, {width, width, 3, 1}}
          : std::vector<Size>{{in, width, 1, 1}, {width, width, 3, stride}, {width, out_, 1, 1}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto [from, to, kernel, step] = sizes[i];
    const Conv2dOptions options{.stride = step, .padding = kernel / 2, .bias = !config.norm};
    auto& conv = *convs_.emplace_back(std::make_unique<Conv2d>(from, to, kernel, options));
    register_module(fmt::format("conv{}", i + 1), conv);
    init_conv(conv);
    auto& norm = norms_.emplace_back(make_norm(pre_activation_ ? from : to, config));
    if (norm) register_module(fmt::format("bn{}", i + 1), *norm);
  }
  if (config.zero_init_residual) {
    const bool by_norm = config.norm && !pre_activation_;  // whose first parameter is the weight
    init::zeros_(by_norm ? norms_.back()->parameters()[0] : convs_.back()->weight);
  }
  if (config.projection && (stride != 1 || in != out_)) {
    downsample_.emplace();
    init_conv(downsample_->emplace<Conv2d>(in, out_, 1,
                                           Conv2dOptions{.stride = stride, .bias = !config.norm}));
    if (config.norm && !pre_activation_) downsample_->append(make_norm(out_, config));
    register_module("downsample", *downsample_);
  }
}

// Handles are moved, so that relu and the sum overwrite what nobody reads again.
Tensor ResidualBlock::forward(Tensor x) {
  const bool same_shape = stride_ == 1 && in_ == out_;
  if (pre_activation_) {
    Tensor a = same_shape ? activate(0, x) : activate(0, std::move(x));
    Tensor direct = same_shape ? std::move(x) : shortcut(a);
    return add(residual(std::move(a)), std::move(direct));
  }
  Tensor y = residual(x);
  Tensor direct = same_shape ? std::move(x) : shortcut(std::move(x));
  return relu(add(std::move(y), std::move(direct)));
}

Tensor ResidualBlock::residual(Tensor x) {
  for (size_t i = 0; i < convs_.size(); ++i) {
    if (pre_activation_ && i > 0) x = activate(i, std::move(x));
    x = convs_[i]->forward(std::move(x));
    if (pre_activation_) continue;
    if (norms_[i]) x = norms_[i]->forward(std::move(x));
    if (i + 1 < convs_.size()) x = relu(std::move(x));
  }
  return x;
}

Tensor ResidualBlock::activate(size_t step, Tensor x) {
  if (norms_[step]) x = norms_[step]->forward(std::move(x));
  return relu(std::move(x));
}

// Option A of the paper has no parameters: it takes every stride-th pixel and fills new channels
// with zeros.
Tensor ResidualBlock::shortcut(Tensor x) {
  if (downsample_) return downsample_->forward(std::move(x));
  const int64_t h = x.size(1), w = x.size(2);
  if (stride_ > 1) x = slice(slice(std::move(x), 1, 0, h, stride_), 2, 0, w, stride_);
  const int64_t before = (out_ - in_) / 2, after = out_ - in_ - before;
  return pad(std::move(x), {0, 0, 0, before}, {0, 0, 0, after});
}

ResNet::ResNet(const ResNetConfig& config)
    : config_(checked(config)),
      conv1_(3, config.widths.at(0), config.large_stem ? 7 : 3,
             config.large_stem ? Conv2dOptions{.stride = 2, .padding = 3, .bias = !config.norm}
                               : Conv2dOptions{.stride = 1, .padding = 1, .bias = !config.norm}),
      fc_(ResidualBlock::out_channels(config.widths.back(), config.block), config.classes) {
  register_module("conv1", conv1_);
  init_conv(conv1_);
  const int features = ResidualBlock::out_channels(config.widths.back(), config.block);
  norm_ = make_norm(config.pre_activation ? features : config.widths[0], config);
  if (norm_ && !config.pre_activation) register_module("bn1", *norm_);

  int channels = config.widths[0];
  for (size_t s = 0; s < config.depths.size(); ++s) {
    stages_.push_back(std::make_unique<Sequential>());
    for (int b = 0; b < config.depths[s]; ++b) {
      const int stride = b == 0 && s > 0 ? 2 : 1;
      auto& block = stages_[s]->emplace<ResidualBlock>(channels, config.widths[s], stride, config);
      blocks_.push_back(&block);
      channels = ResidualBlock::out_channels(config.widths[s], config.block);
    }
    register_module(fmt::format("layer{}", s + 1), *stages_[s]);
  }
  if (norm_ && config.pre_activation) register_module("norm", *norm_);
  register_module("fc", fc_);
}

void ResNet::set_stage_checkpoint(int every) {
  check(every >= 0, "set_stage_checkpoint", "a segment spans one stage or more, got {}", every);
  stages_per_segment_ = every;
}

Tensor ResNet::forward(Tensor x) {
  check<ShapeError>(x.rank() == 4 && x.size(3) == 3, "ResNet", "needs images [N, H, W, 3], got {}",
                    x);
  x = stem(std::move(x));
  const auto run = [](Module& module, Tensor in) { return module.forward(std::move(in)); };
  if (is_training() && stages_per_segment_ > 0)
    x = through_layers(stages_, stages_per_segment_, std::move(x), run);
  else
    x = through_layers(blocks_, layers_per_segment(), std::move(x), run);
  if (config_.pre_activation) {
    if (norm_) x = norm_->forward(std::move(x));
    x = relu(std::move(x));
  }
  return fc_.forward(mean(std::move(x), {1, 2}));
}

Tensor ResNet::stem(Tensor x) {
  x = conv1_.forward(std::move(x));
  if (norm_ && !config_.pre_activation) x = norm_->forward(std::move(x));
  // relu comes after pooling: the result is the same, but relu keeps a quarter as much, and the
  // next convolution keeps these values anyway.
  if (config_.large_stem) x = max_pool2d(std::move(x), {.kernel = 3, .stride = 2, .padding = 1});
  return config_.pre_activation ? x : relu(std::move(x));
}

ResNetConfig resnet_cifar(int depth, int version, BlockKind block, int classes) {
  check(version == 1 || version == 2, "resnet_cifar", "the version must be 1 or 2, got {}",
        version);
  const int per_block = block == BlockKind::basic ? 6 : 9;  // layers in one block of each stage
  check(depth > 2 && (depth - 2) % per_block == 0, "resnet_cifar",
        "the depth must be {}k + 2, got {}", per_block, depth);
  ResNetConfig config;
  config.block = block;
  config.depths.assign(3, (depth - 2) / per_block);
  config.pre_activation = version == 2;
  config.projection = version == 2;
  config.classes = classes;
  return config;
}

ResNetConfig resnet_imagenet(int depth, int classes) {
  ResNetConfig config;
  switch (depth) {
    case 18:
      config.depths = {2, 2, 2, 2};
      break;
    case 34:
    case 50:
      config.depths = {3, 4, 6, 3};
      break;
    case 101:
      config.depths = {3, 4, 23, 3};
      break;
    case 152:
      config.depths = {3, 8, 36, 3};
      break;
    default:
      fail("resnet_imagenet", "the depth must be 18, 34, 50, 101 or 152, got {}", depth);
  }
  config.block = depth < 50 ? BlockKind::basic : BlockKind::bottleneck;
  config.widths = {64, 128, 256, 512};
  config.large_stem = true;
  config.projection = true;
  config.classes = classes;
  return config;
}

}  // namespace rw
