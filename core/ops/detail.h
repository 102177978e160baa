// What the op families share.
#pragma once

#include <optional>
#include <utility>

#include "rewind/core/ops/autocast.h"
#include "rewind/core/ops/ops.h"
#include "rewind/core/tensor/launch.h"

namespace rw::detail {

inline std::vector<Tensor> one(Tensor t) {
  return TensorList(std::move(t));
}

// A new tensor on the same device.
inline Tensor empty_on(const Tensor& like, const Shape& shape, DType dtype) {
  return empty(shape, dtype, like.device().shared_from_this());
}

inline void check_float(const Tensor& t, const char* op) {
  check<DTypeError>(is_float(t.dtype()), op, "needs a float tensor, got {}", t);
}

// a [..., m, k] @ b [..., k, n] of `dtype`, unrecorded, added to `added` [..., m, n] where that is
// given (matmul.cpp).
Tensor gemm(const Tensor& a, const Tensor& b, DType dtype, const Tensor& added = {});

// What the vjp of a product of two inputs reads: each factor, for the other's gradient
// (matmul.cpp).
Saves product_saves(const std::any&, uint32_t needs);
// DTypeError unless both are f32 or both f16 (matmul.cpp).
void check_same_float(const Tensor& a, const Tensor& b, const char* op);

// A normalisation's `weight` [C] f32, checked against x [..., C], or `value` where it is undefined
// (layer_norm.cpp).
Tensor per_channel(const Tensor& weight, float value, const Tensor& x, const char* op);

// How many targets are not ignored, at least 1: f32 scalar (loss.cpp).
Tensor count_valid(const Tensor& target, int ignore_index);

// With REWIND_CHECK_INDICES=1: ValueError unless all elements of the i32 tensor are in [0, most] or
// `ignored`; waits for the device. `what` is its name in the message (index.cpp).
void check_indices(const char* op, const char* what, const Tensor& index, int64_t most,
                   std::optional<int32_t> ignored = {});

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

// Places of a window of `kernel` elements along one axis, with `pad_end` behind it where that is
// not `pad`. ShapeError where there is none, or where 64 bits do not hold the padded size
// (pool.cpp).
int64_t window_places(const char* op, const Tensor& x, int axis, int64_t kernel, int64_t stride,
                      int64_t pad, int64_t dilation, std::optional<int64_t> pad_end = {});

// Split of a 64-bit number into kernel parameters.
inline uint32_t low(uint64_t v) {
  return static_cast<uint32_t>(v);
}
inline uint32_t high(uint64_t v) {
  return static_cast<uint32_t>(v >> 32);
}

}  // namespace rw::detail
