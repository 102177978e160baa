// Stochastic gradient descent, with PyTorch's semantics and defaults.
#pragma once

#include "rewind/optim/optimizer.h"

namespace rw {

struct SGDOptions {
  float lr = 1e-3f;
  float momentum = 0;
  float dampening = 0;
  float weight_decay = 0;  // added to the gradient
  bool nesterov = false;   // needs momentum > 0 and dampening == 0
  bool maximize = false;
};

class SGD : public Optimizer {
 public:
  explicit SGD(std::vector<Tensor> parameters, const SGDOptions& options = {});
  explicit SGD(std::vector<ParameterGroup> groups, const SGDOptions& options = {});
  explicit SGD(std::initializer_list<Tensor> parameters, const SGDOptions& options = {})
      : SGD(std::vector<Tensor>(parameters), options) {}
};

}  // namespace rw
