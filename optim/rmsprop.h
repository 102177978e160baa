// RMSprop (Hinton 2012; centered: Graves 2013), with PyTorch's semantics and defaults.
#pragma once

#include "base/optimizer.h"

namespace rw {

// ValueError unless lr, momentum and weight_decay are >= 0, alpha in [0, 1), eps > 0.
struct RMSpropOptions {
  float lr = 1e-2f;        // learning rate
  float alpha = 0.99f;     // decay of the means
  float eps = 1e-8f;       // added to the root
  float weight_decay = 0;  // added to the gradient
  float momentum = 0;      // share of the velocity that an update keeps; 0: no velocity
  bool centered = false;   // divides by the standard deviation, not by the root mean square
};

// With v the mean of the squared gradient, or its variance when centered: u = momentum * u + g /
// (sqrt(v) + eps), w -= lr * u. State, f32: "square_avg", and where they are used "momentum_buffer"
// and "grad_avg".
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(std::vector<Tensor> parameters, const RMSpropOptions& options = {});
  explicit RMSprop(std::vector<ParameterGroup> groups, const RMSpropOptions& options = {});
  explicit RMSprop(std::initializer_list<Tensor> parameters, const RMSpropOptions& options = {})
      : RMSprop(std::vector<Tensor>(parameters), options) {}
};

}  // namespace rw
