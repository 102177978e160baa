// Stochastic gradient descent, with PyTorch's semantics and defaults.
#pragma once

#include "optim/optimizer.h"

namespace rw {

struct SgdOptions {
  float lr = 1e-3f;
  float momentum = 0;
  float dampening = 0;
  float weight_decay = 0;  // added to the gradient
  bool nesterov = false;   // needs momentum > 0 and dampening == 0
  bool maximize = false;
};

class Sgd : public Optimizer {
 public:
  explicit Sgd(std::vector<Tensor> parameters, const SgdOptions& options = {});
  explicit Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options = {});
  explicit Sgd(std::initializer_list<Tensor> parameters, const SgdOptions& options = {})
      : Sgd(std::vector<Tensor>(parameters), options) {}
};

}  // namespace rw
