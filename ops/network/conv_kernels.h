// Shared by convolutions of two and of three dimensions.
#pragma once

#include "../detail.h"

namespace rw::detail {

// A convolution of images from x to y by w; `padding` is above and to the left, and the rest
// follows from the shapes.
struct ConvAttrs {
  Size2d stride, padding, dilation;
  int groups;
  Shape x, w, y;
};

// One of conv2d: a = x, b = w -> y; conv2d_dgrad: dy, w -> dx; conv2d_wgrad: x, dy -> dw. All
// dense.
void conv_into(const char* kernel, const ConvAttrs& attrs, const Tensor& a, const Tensor& b,
               const Tensor& result);

// Checks a bias [outputs] of floats, or undefined; and adds it.
void check_bias(const char* op, const Tensor& bias, const Tensor& weight, int64_t outputs);
Tensor add_bias(Tensor y, Tensor bias);

}  // namespace rw::detail
