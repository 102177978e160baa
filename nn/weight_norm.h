// Weights as a length and a direction (Salimans and Kingma 2016, "Weight Normalization").
#pragma once

#include "layers.h"

namespace rw {

// g * v / |v|, with the norm of each v[i] over all axes but the first: v [O, ...], g of O elements,
// [O] or [O, 1, ...] -> the shape of v. It takes f32, f16 or bf16 and computes in f32; ShapeError.
Tensor weight_norm(Tensor v, Tensor g);

//! torch: utils.weight_norm(Linear)
// Linear whose weight is weight_norm(weight_v, weight_g), computed in each forward: PyTorch's
// weight_norm(nn.Linear(...)), with its names. The weight starts as Linear's. ValueError for sizes.
class WeightNormLinear : public Module {
 public:
  WeightNormLinear(int64_t in, int64_t out, bool bias = true);
  Tensor forward(Tensor x) override;

  Tensor bias;                // [out], or undefined
  Tensor weight_g, weight_v;  // [out, 1] and [out, in]
};

//! torch: utils.weight_norm(Conv2d)
// The same for Conv2d.
class WeightNormConv2d : public Module {
 public:
  WeightNormConv2d(int64_t in, int64_t out, Size2d kernel, const Conv2dOptions& options = {});
  Tensor forward(Tensor x) override;

  Tensor bias;                // [out], or undefined
  Tensor weight_g, weight_v;  // [out, 1, 1, 1] and [out, kernel.h, kernel.w, in / groups]

 private:
  Conv2dOptions options_;
};

}  // namespace rw
