// Lion (Chen et al. 2023): the sign of a momentum, with half of Adam's state.
#pragma once

#include "base/optimizer.h"

namespace rw {

// ValueError unless lr and weight_decay are >= 0, the betas in [0, 1).
struct LionOptions {
  float lr = 1e-4f;                   // learning rate: a third to a tenth of Adam's
  float beta1 = 0.9f, beta2 = 0.99f;  // for the momentum in the update, and for the one kept
  float weight_decay =
      0;  // decoupled: parameters shrink by lr * weight_decay; 3 to 10 times Adam's
};

//! torch: none
// With m the momentum: w -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * w), then m =
// beta2 * m + (1 - beta2) * g. State: m, f32, "exp_avg".
class Lion : public Optimizer {
 public:
  explicit Lion(std::vector<Tensor> parameters, const LionOptions& options = {});
  explicit Lion(std::vector<ParameterGroup> groups, const LionOptions& options = {});
  explicit Lion(std::initializer_list<Tensor> parameters, const LionOptions& options = {})
      : Lion(std::vector<Tensor>(parameters), options) {}
};

}  // namespace rw
