// Convolutions and their gradients by the image, as one kind of sum along each axis.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "matrix_passes.h"

namespace rw::vulkan {

// One axis of a convolution as it is run: row i meets the image at i * stride + origin + tap *
// step, with kernel element k0 + tap * k_step, and is pixel first + i * every of the result.
struct Axis {
  uint32_t rows, taps, stride;
  int origin, step, k0, k_step;
  uint32_t first, every;
};

inline Axis forward_axis(uint32_t out, uint32_t kernel, uint32_t stride, uint32_t pad,
                         uint32_t dilation) {
  return {out, kernel, stride, -static_cast<int>(pad), static_cast<int>(dilation), 0, 1, 0, 1};
}

// The input pixels phase, phase + stride, ... meet every period-th element of the kernel, each at
// consecutive outputs: a convolution of stride 1 over dy, with the kernel reversed.
inline Axis gradient_axis(uint32_t phase, uint32_t in, uint32_t kernel, uint32_t stride,
                          uint32_t pad, uint32_t dilation) {
  const uint32_t period = stride / std::gcd(stride, dilation);
  uint32_t k = 0;
  while (k < std::min(period, kernel) &&
         (static_cast<int64_t>(phase) + pad - int64_t{k} * dilation) % stride != 0)
    ++k;
  const uint32_t rows = phase < in ? static_cast<uint32_t>(divide_up(in - phase, stride)) : 0;
  if (k >= std::min(period, kernel)) return {rows, 0, 1, 0, 1, 0, 0, phase, stride};
  const int taps = static_cast<int>((kernel - 1 - k) / period + 1);
  const int step = static_cast<int>(period * dilation / stride);
  const int meets =
      (static_cast<int>(phase + pad) - static_cast<int>(k * dilation)) / static_cast<int>(stride);
  return {rows,
          static_cast<uint32_t>(taps),
          1,
          meets - (taps - 1) * step,
          step,
          static_cast<int>(k + (taps - 1) * period),
          -static_cast<int>(period),
          phase,
          stride};
}

struct Axes {
  Axis h, w;
};

inline Axes forward_axes(const kernels::Conv2dParams& p) {
  return {forward_axis(p.out_h, p.kernel_h, p.stride_h, p.pad_h, p.dilation_h),
          forward_axis(p.out_w, p.kernel_w, p.stride_w, p.pad_w, p.dilation_w)};
}

// Returns one for each phase of the strides: together they make every pixel of the image.
inline std::vector<Axes> gradient_axes(const kernels::Conv2dParams& p) {
  std::vector<Axes> all;
  for (uint32_t h = 0; h < p.stride_h; ++h)
    for (uint32_t w = 0; w < p.stride_w; ++w)
      all.push_back({gradient_axis(h, p.in_h, p.kernel_h, p.stride_h, p.pad_h, p.dilation_h),
                     gradient_axis(w, p.in_w, p.kernel_w, p.stride_w, p.pad_w, p.dilation_w)});
  return all;
}

inline double conv_flops(const kernels::Conv2dParams& p) {
  return 2.0 * p.batch * p.out_h * p.out_w * p.out_c * p.kernel_h * p.kernel_w *
         (p.in_c / p.groups);
}

}  // namespace rw::vulkan
