// What convolutions of two and of three dimensions share.
#pragma once

#include "../detail.h"

namespace rw::detail {

// A convolution of images from x to y by w; `padding` is that above and to the left, the rest
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

// A bias [outputs] of floats, or undefined; and its addition.
void check_bias(const char* op, const Tensor& bias, const Tensor& weight, int64_t outputs);
Tensor add_bias(Tensor y, Tensor bias);

}  // namespace rw::detail
