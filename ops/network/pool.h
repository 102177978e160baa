// Windows of convolutions and pooling.
#pragma once

#include <optional>

#include "../../core/tensor/launch.h"

namespace rw::detail {

// Stride, padding and dilation of a window's kernel parameters.
template <class Params, class Options>
void set_window(Params& p, const Options& o, const char* op) {
  const auto u = [op](int64_t v) { return count32(v, op); };
  p.stride_h = u(o.stride.h);
  p.stride_w = u(o.stride.w);
  p.pad_h = u(o.padding.h);
  p.pad_w = u(o.padding.w);
  p.dilation_h = u(o.dilation.h);
  p.dilation_w = u(o.dilation.w);
}

// The places of a window of `kernel` elements along one axis, with `pad_end` after it if that
// differs from `pad`. ShapeError if there is none, or if 64 bits do not hold the padded size.
int64_t window_places(const char* op, const Tensor& x, int axis, int64_t kernel, int64_t stride,
                      int64_t pad, int64_t dilation, std::optional<int64_t> pad_end = {});

}  // namespace rw::detail
