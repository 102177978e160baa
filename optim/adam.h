// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), with PyTorch's semantics and
// defaults.
#pragma once

#include "base/optimizer.h"

namespace rw {

// ValueError unless lr and weight_decay are >= 0, the betas in [0, 1), eps > 0.
struct AdamOptions {
  float lr = 1e-3f;                    // learning rate
  float beta1 = 0.9f, beta2 = 0.999f;  // decay of the means of gradients and of their squares
  float eps = 1e-8f;                   // added to the root of the mean square
  float weight_decay = 0;              // added to the gradient
  bool amsgrad = false;  // divides by the largest mean square so far (Reddi et al. 2018)
};

// With m and v the means of the gradient and of its square, corrected for their bias: w -= lr * m /
// (sqrt(v) + eps). State: m and v, f32, "exp_avg" and "exp_avg_sq"; with amsgrad "max_exp_avg_sq".
class Adam : public Optimizer {
 public:
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {});
  explicit Adam(std::vector<ParameterGroup> groups, const AdamOptions& options = {});
  explicit Adam(std::initializer_list<Tensor> parameters, const AdamOptions& options = {})
      : Adam(std::vector<Tensor>(parameters), options) {}
};

// Adam's rule, for optimizers that use it for some parameters.
std::unique_ptr<UpdateRule> adam_rule(const AdamOptions& options);

// As AdamOptions.
struct AdamWOptions {
  float lr = 1e-3f;                    // learning rate
  float beta1 = 0.9f, beta2 = 0.999f;  // decay of the means of gradients and of their squares
  float eps = 1e-8f;                   // added to the root of the mean square
  float weight_decay = 1e-2f;          // decoupled: parameters shrink by lr * weight_decay
  bool amsgrad = false;                // as AdamOptions
};

// As adam_rule().
std::unique_ptr<UpdateRule> adamw_rule(const AdamWOptions& options);

// Adam with w *= 1 - lr * weight_decay before the update.
class AdamW : public Optimizer {
 public:
  explicit AdamW(std::vector<Tensor> parameters, const AdamWOptions& options = {});
  explicit AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options = {});
  explicit AdamW(std::initializer_list<Tensor> parameters, const AdamWOptions& options = {})
      : AdamW(std::vector<Tensor>(parameters), options) {}
};

}  // namespace rw
