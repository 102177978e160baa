#include "nn/norm.h"

#include "nn/init.h"
#include "ops/operators.h"

namespace rw {

LayerNorm::LayerNorm(int64_t size, float eps, bool has_bias) : eps_(eps) {
  check_positive("LayerNorm", {{"size", size}});
  weight = register_parameter("weight", {size});
  init::ones_(weight);
  if (!has_bias) return;
  bias = register_parameter("bias", {size});
  init::zeros_(bias);
}

RMSNorm::RMSNorm(int64_t size, float eps, float offset) : eps_(eps), offset_(offset) {
  check_positive("RMSNorm", {{"size", size}});
  weight = register_parameter("weight", {size});
  init::constant_(weight, 1 - offset);
}

Tensor RMSNorm::forward(Tensor x) {
  return rms_norm(std::move(x), offset_ == 0 ? weight : cast(weight, DType::f32) + offset_, eps_);
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, float eps) : groups_(groups), eps_(eps) {
  check_positive("GroupNorm", {{"groups", groups}, {"channels", channels}});
  check<ShapeError>(channels % groups == 0, "GroupNorm",
                    "groups must divide the channels, got {} and {}", groups, channels);
  weight = register_parameter("weight", {channels});
  bias = register_parameter("bias", {channels});
  init::ones_(weight);
  init::zeros_(bias);
}

InstanceNorm2d::InstanceNorm2d(int64_t channels, float eps, bool affine)
    : channels_(channels), eps_(eps) {
  check_positive("InstanceNorm2d", {{"channels", channels}});
  if (!affine) return;
  weight = register_parameter("weight", {channels});
  bias = register_parameter("bias", {channels});
  init::ones_(weight);
  init::zeros_(bias);
}

Tensor InstanceNorm2d::forward(Tensor x) {
  check<ShapeError>(x.rank() == 4 && x.size(-1) == channels_, "InstanceNorm2d",
                    "needs x [N, H, W, {}], got {}", channels_, x);
  return instance_norm(std::move(x), weight, bias, eps_);
}

}  // namespace rw
