#include "nn/norm.h"

#include "nn/init.h"

namespace rw {

LayerNorm::LayerNorm(int64_t size, float eps, bool has_bias) : eps_(eps) {
  weight = register_parameter("weight", {size});
  init::ones_(weight);
  if (!has_bias) return;
  bias = register_parameter("bias", {size});
  init::zeros_(bias);
}

RMSNorm::RMSNorm(int64_t size, float eps) : eps_(eps) {
  weight = register_parameter("weight", {size});
  init::ones_(weight);
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, float eps) : groups_(groups), eps_(eps) {
  check<ShapeError>(groups > 0 && channels % groups == 0, "GroupNorm",
                    "groups must divide the channels, got {} and {}", groups, channels);
  weight = register_parameter("weight", {channels});
  bias = register_parameter("bias", {channels});
  init::ones_(weight);
  init::zeros_(bias);
}

}  // namespace rw
