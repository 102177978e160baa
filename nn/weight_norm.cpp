#include "nn/weight_norm.h"

#include "ops/numeric.h"
#include "ops/operators.h"

namespace rw {

namespace {

// |v[i]| as [O, 1, ...].
Tensor norms(Tensor v) {
  Axes inner;
  for (int axis = 1; axis < v.rank(); ++axis) inner.push_back(axis);
  return inner.empty() ? abs(std::move(v)) : norm(std::move(v), 2, inner, true);
}

}  // namespace

Tensor weight_norm(Tensor v, Tensor g) {
  check<ShapeError>(
      v.rank() > 0 && g.numel() == v.size(0) && g.rank() > 0 && g.size(0) == v.size(0),
      "weight_norm", "needs v [O, ...] and g of O elements, got {} and {}", v, g);
  Shape rows = v.shape();
  for (int axis = 1; axis < v.rank(); ++axis) rows[axis] = 1;
  const DType dtype = v.dtype();
  Tensor wide = cast(std::move(v), DType::f32);
  Tensor factor = reshape(cast(std::move(g), DType::f32), rows) / norms(wide);
  return cast(std::move(wide) * std::move(factor), dtype);
}

// The plain layer provides the initial values.
WeightNormLinear::WeightNormLinear(int64_t in, int64_t out, bool has_bias) {
  const Linear plain(in, out, has_bias);
  if (has_bias) bias = register_parameter("bias", plain.bias.shape());
  weight_g = register_parameter("weight_g", {out, 1});
  weight_v = register_parameter("weight_v", plain.weight.shape());
  const NoGrad guard;
  if (has_bias) bias.copy_(plain.bias);
  weight_v.copy_(plain.weight);
  weight_g.copy_(norms(plain.weight));
}

Tensor WeightNormLinear::forward(Tensor x) {
  return linear(std::move(x), weight_norm(weight_v, weight_g), bias);
}

WeightNormConv2d::WeightNormConv2d(int64_t in, int64_t out, Size2d kernel, const Conv2dOptions& o)
    : options_(o) {
  const Conv2d plain(in, out, kernel, o);
  if (plain.bias) bias = register_parameter("bias", plain.bias.shape());
  weight_g = register_parameter("weight_g", {out, 1, 1, 1});
  weight_v = register_parameter("weight_v", plain.weight.shape());
  const NoGrad guard;
  if (plain.bias) bias.copy_(plain.bias);
  weight_v.copy_(plain.weight);
  weight_g.copy_(norms(plain.weight));
}

Tensor WeightNormConv2d::forward(Tensor x) {
  return conv2d(std::move(x), weight_norm(weight_v, weight_g), bias, options_);
}

}  // namespace rw
