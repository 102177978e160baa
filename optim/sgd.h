// Stochastic gradient descent, with PyTorch's semantics and defaults.
#pragma once

#include "base/optimizer.h"

namespace rw {

// ValueError unless lr, momentum and weight_decay are >= 0.
struct SGDOptions {
  float lr = 1e-3f;        // learning rate
  float momentum = 0;      // the share of the velocity that remains per update; 0: there is none
  float dampening = 0;     // the share of the gradient that is not added to it
  float weight_decay = 0;  // added to the gradient
  bool nesterov = false;   // needs momentum > 0 and dampening == 0
  bool maximize = false;   // up the gradient instead of down
};

// With g the gradient and v = momentum * v + (1 - dampening) * g: w -= lr * v (nesterov: lr * (g +
// momentum * v)). v starts as the first g. State, if there is momentum: v, f32, "momentum_buffer".
class SGD : public Optimizer {
 public:
  explicit SGD(std::vector<Tensor> parameters, const SGDOptions& options = {});
  explicit SGD(std::vector<ParameterGroup> groups, const SGDOptions& options = {});
  explicit SGD(std::initializer_list<Tensor> parameters, const SGDOptions& options = {})
      : SGD(std::vector<Tensor>(parameters), options) {}
};

}  // namespace rw
