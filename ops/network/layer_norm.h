// Shared by normalisations.
#pragma once

#include <array>

#include "../ops.h"

namespace rw::detail {

// A normalisation's `weight` [C], checked against x [..., C], as f32, or `value` if it is
// undefined.
Tensor per_channel(const Tensor& weight, float value, const Tensor& x, const char* op);

// The gradient of a normalisation that is differentiated in turn, by name as in SecondOrder, all
// f32: x and dy as [...], weight and the gradients of its gradient as what broadcasts to them.
// Statistics are those over `axes`. Undefined: g of what had no gradient, and a weight that the vjp
// did not read.
struct NormSecond {
  Tensor x, weight, dy, g_x, g_weight, g_bias;
  Axes axes;
  float eps;
  bool is_centred = true;  // false: x is divided by the root of its mean square (RMS norm)
};
// Returns the gradients of x, weight and dy, that of the weight summed to its shape.
std::array<Tensor, 3> norm_second(const NormSecond& n);

}  // namespace rw::detail
