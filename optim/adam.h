// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), with PyTorch's semantics and
// defaults.
#pragma once

#include "rewind/optim/optimizer.h"

namespace rw {

struct AdamOptions {
  float lr = 1e-3f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0;  // added to the gradient
};

class Adam : public Optimizer {
 public:
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {});
  explicit Adam(std::vector<ParameterGroup> groups, const AdamOptions& options = {});
  explicit Adam(std::initializer_list<Tensor> parameters, const AdamOptions& options = {})
      : Adam(std::vector<Tensor>(parameters), options) {}
};

struct AdamWOptions {
  float lr = 1e-3f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 1e-2f;  // decoupled: parameters shrink by lr * weight_decay
};

class AdamW : public Optimizer {
 public:
  explicit AdamW(std::vector<Tensor> parameters, const AdamWOptions& options = {});
  explicit AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options = {});
  explicit AdamW(std::initializer_list<Tensor> parameters, const AdamWOptions& options = {})
      : AdamW(std::vector<Tensor>(parameters), options) {}
};

}  // namespace rw
