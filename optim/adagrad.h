// Adagrad (Duchi et al. 2011), with PyTorch's semantics and defaults.
#pragma once

#include "base/optimizer.h"

namespace rw {

// ValueError unless eps is > 0 and all others are >= 0.
struct AdagradOptions {
  float lr = 1e-2f;                     // learning rate
  float lr_decay = 0;                   // update t, from 0, has the rate lr / (1 + t * lr_decay)
  float weight_decay = 0;               // added to the gradient
  float initial_accumulator_value = 0;  // of the sum of squares
  float eps = 1e-10f;                   // added to its root
};

// With s the sum of the squared gradients so far: w -= lr * g / (sqrt(s) + eps). State: s, f32,
// "sum".
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(std::vector<Tensor> parameters, const AdagradOptions& options = {});
  explicit Adagrad(std::vector<ParameterGroup> groups, const AdagradOptions& options = {});
  explicit Adagrad(std::initializer_list<Tensor> parameters, const AdagradOptions& options = {})
      : Adagrad(std::vector<Tensor>(parameters), options) {}
};

}  // namespace rw
