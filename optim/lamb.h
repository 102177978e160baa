// LAMB (You et al. 2020): AdamW whose step is scaled per parameter, for very large batches.
#pragma once

#include "base/optimizer.h"

namespace rw {

// As AdamOptions; eps may be 0.
struct LambOptions {
  float lr = 1e-3f;                    // learning rate
  float beta1 = 0.9f, beta2 = 0.999f;  // decay of the means of gradients and of their squares
  float eps = 1e-6f;                   // added to the root of the mean square
  float weight_decay = 1e-2f;          // decoupled
};

//! torch: none
// With u the bias-corrected Adam update plus weight_decay * w: w -= lr * |w| / |u| * u. The factor
// |w| / |u| is 1 if either norm is 0, and in groups whose weight decay is 0: the paper's code
// excludes biases and normalisation (decay_groups) from both.
class Lamb : public Optimizer {
 public:
  explicit Lamb(std::vector<Tensor> parameters, const LambOptions& options = {});
  explicit Lamb(std::vector<ParameterGroup> groups, const LambOptions& options = {});
  explicit Lamb(std::initializer_list<Tensor> parameters, const LambOptions& options = {})
      : Lamb(std::vector<Tensor>(parameters), options) {}
};

}  // namespace rw
