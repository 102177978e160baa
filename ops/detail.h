// What the op families share.
#pragma once

#include <cmath>
#include <optional>
#include <utility>

#include "../core/tensor/launch.h"
#include "autocast.h"
#include "ops.h"

namespace rw::detail {

inline std::vector<Tensor> one(Tensor t) {
  return TensorList(std::move(t));
}

// A new tensor on the same device.
inline Tensor empty_on(const Tensor& like, const Shape& shape, DType dtype) {
  return empty(shape, dtype, like.device().shared_from_this());
}

// A new tensor of one element on the same device.
inline Tensor scalar_on(const Tensor& like, float value, DType dtype) {
  return full({}, value, dtype, like.device().shared_from_this());
}

inline void check_float(const Tensor& t, const char* op) {
  check<DTypeError>(is_float(t.dtype()), op, "needs a float tensor, got {}", t);
}

// What is added to a variance or a length, or bounds it.
inline void check_eps(float eps, const char* op) {
  check(eps >= 0 && std::isfinite(eps), op, "eps must be finite and not negative, got {}", eps);
}

// a [..., m, k] @ b [..., k, n] of `dtype`, unrecorded, added to `added` [..., m, n] where that is
// given (matmul.cpp).
Tensor gemm(const Tensor& a, const Tensor& b, DType dtype, const Tensor& added = {});

// What the vjp of a product of two inputs reads: each factor, for the other's gradient
// (matmul.cpp).
Saves product_saves(const std::any&, uint32_t needs);
// DTypeError unless both are f32 or both f16 (matmul.cpp).
void check_same_float(const Tensor& a, const Tensor& b, const char* op);

// A normalisation's `weight` [C], checked against x [..., C], as f32, or `value` where it is
// undefined (layer_norm.cpp).
Tensor per_channel(const Tensor& weight, float value, const Tensor& x, const char* op);

// The losses one by one, their mean or their sum (losses.cpp).
Tensor reduced(Tensor losses, Reduction reduction);
// How many targets are not ignored, at least 1: f32 scalar (loss.cpp).
Tensor count_valid(const Tensor& target, int ignore_index);

// With REWIND_CHECK_INDICES=1: ValueError unless all elements of the i32 tensor are in [0, most] or
// `ignored`; waits for the device. `what` is its name in the message (index.cpp).
void check_indices(const char* op, const char* what, const Tensor& index, int64_t most,
                   std::optional<int32_t> ignored = {});

// The axes that a reduction is given, ascending; none given: all of x (reduce.cpp).
std::vector<int> reduced_axes(const Tensor& x, const Axes& axes, const char* op);
// `shape` without the (ascending) axes, or with 1 in their places (reduce.cpp).
Shape reduced_shape(const Shape& shape, const std::vector<int>& axes, bool keepdims);

// A dense tensor as [outer, count, inner] around an axis.
struct Around {
  int64_t outer = 1, count, inner = 1;
  Around(const Shape& shape, int axis) : count(shape[axis]) {
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  }
};

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

// Rows of a table [rows, width] that an index [n] (i32, dense) names.
struct Rows {
  Tensor index;
  int64_t n, width, rows;
};
// How rows are put where an index says (the kernel scatter_add's modes).
enum class PutMode : uint32_t { add, replace, unique };
// y [n, width] = table[index] (index.cpp).
Tensor take_rows(const Tensor& table, const Rows& rows);
// Adds dy's rows to y (f32 or i32, dense) or puts them there, in the order of the index; `unique`:
// none occurs twice.
void put_rows(const Tensor& dy, const Rows& rows, const Tensor& y, PutMode mode);
// Which of the rows are the last ones of their index: u8 [n].
Tensor is_last_row(const Rows& rows);
// Keys and places of x [lines, count], sorted along the lines (sort.cpp).
struct Sorted {
  Tensor key, order;
};
Sorted sort_lines(const Tensor& x, bool descending);
// gather() with an index that names no place of a line twice (indexing.cpp).
Tensor gather_unique(Tensor x, int axis, Tensor index);

// Split of a 64-bit number into kernel parameters.
inline uint32_t low(uint64_t v) {
  return static_cast<uint32_t>(v);
}
inline uint32_t high(uint64_t v) {
  return static_cast<uint32_t>(v >> 32);
}

}  // namespace rw::detail
