#include "nn/conv.h"

#include <fmt/format.h>

#include <algorithm>

#include "nn/init.h"

namespace rw {

namespace {

void check_padding(const char* module, std::initializer_list<int> padding) {
  check(std::min(padding) >= 0, module, "padding must not be negative, got {}",
        fmt::join(padding, " and "));
}

// These are checked here, where the faulty line is the user's, and not in the first forward.
void check_conv(const char* module, int64_t in, int64_t out, int groups,
                std::initializer_list<int> kernel, std::initializer_list<int> stride,
                std::initializer_list<int> dilation, std::initializer_list<int> padding) {
  check_positive(module, {{"in_channels", in},
                          {"out_channels", out},
                          {"kernel", std::min(kernel)},
                          {"stride", std::min(stride)},
                          {"dilation", std::min(dilation)},
                          {"groups", groups}});
  check_padding(module, padding);
  check(in % groups == 0 && out % groups == 0, module,
        "groups must divide the channels, got {} groups for {} -> {}", groups, in, out);
}

void check_output_padding(const char* module, int extra, int stride, int dilation) {
  check(extra >= 0 && extra < std::max(stride, dilation), module,
        "output_padding must be less than the stride or the dilation, got {}", extra);
}

}  // namespace

Conv2d::Conv2d(int64_t in, int64_t out, Size2d kernel, const Conv2dOptions& o) : options_(o) {
  const Size2d end = o.padding_end.value_or(o.padding);
  check_conv("Conv2d", in, out, o.groups, {kernel.h, kernel.w}, {o.stride.h, o.stride.w},
             {o.dilation.h, o.dilation.w}, {o.padding.h, o.padding.w});
  check_padding("Conv2d", {end.h, end.w});
  weight = register_channels_last("weight", {out, kernel.h, kernel.w, in / o.groups});
  if (o.bias) bias = register_parameter("bias", {out});
  init::uniform_by_fan_in_(weight, bias);
}

Tensor Conv2d::forward(Tensor x) {
  return conv2d(std::move(x), weight, bias, options_);
}

Conv1d::Conv1d(int64_t in, int64_t out, int kernel, const Conv1dOptions& o) : options_(o) {
  check_conv("Conv1d", in, out, o.groups, {kernel}, {o.stride}, {o.dilation}, {o.padding});
  check_padding("Conv1d", {o.padding_end.value_or(0)});
  weight = register_channels_last("weight", {out, kernel, in / o.groups});
  if (o.bias) bias = register_parameter("bias", {out});
  init::uniform_by_fan_in_(weight, bias);
}

Tensor Conv1d::forward(Tensor x) {
  return conv1d(std::move(x), weight, bias, options_);
}

Conv3d::Conv3d(int64_t in, int64_t out, Size3d kernel, const Conv3dOptions& o) : options_(o) {
  const Size3d end = o.padding_end.value_or(o.padding);
  check_conv("Conv3d", in, out, o.groups, {kernel.d, kernel.h, kernel.w},
             {o.stride.d, o.stride.h, o.stride.w}, {o.dilation.d, o.dilation.h, o.dilation.w},
             {o.padding.d, o.padding.h, o.padding.w});
  check_padding("Conv3d", {end.d, end.h, end.w});
  weight = register_channels_last("weight", {out, kernel.d, kernel.h, kernel.w, in / o.groups});
  if (o.bias) bias = register_parameter("bias", {out});
  init::uniform_by_fan_in_(weight, bias);
}

Tensor Conv3d::forward(Tensor x) {
  return conv3d(std::move(x), weight, bias, options_);
}

ConvTranspose2d::ConvTranspose2d(int64_t in, int64_t out, Size2d kernel,
                                 const ConvTranspose2dOptions& o)
    : options_(o) {
  check_conv("ConvTranspose2d", in, out, o.groups, {kernel.h, kernel.w}, {o.stride.h, o.stride.w},
             {o.dilation.h, o.dilation.w}, {o.padding.h, o.padding.w});
  check_output_padding("ConvTranspose2d", o.output_padding.h, o.stride.h, o.dilation.h);
  check_output_padding("ConvTranspose2d", o.output_padding.w, o.stride.w, o.dilation.w);
  weight = register_channels_last("weight", {in, kernel.h, kernel.w, out / o.groups});
  if (o.bias) bias = register_parameter("bias", {out});
  init::uniform_by_fan_in_(weight, bias);
}

Tensor ConvTranspose2d::forward(Tensor x) {
  return conv_transpose2d(std::move(x), weight, bias, options_);
}

ConvTranspose1d::ConvTranspose1d(int64_t in, int64_t out, int kernel,
                                 const ConvTranspose1dOptions& o)
    : options_(o) {
  check_conv("ConvTranspose1d", in, out, o.groups, {kernel}, {o.stride}, {o.dilation}, {o.padding});
  check_output_padding("ConvTranspose1d", o.output_padding, o.stride, o.dilation);
  weight = register_channels_last("weight", {in, kernel, out / o.groups});
  if (o.bias) bias = register_parameter("bias", {out});
  init::uniform_by_fan_in_(weight, bias);
}

Tensor ConvTranspose1d::forward(Tensor x) {
  return conv_transpose1d(std::move(x), weight, bias, options_);
}

}  // namespace rw
