// The axes of reductions.
#pragma once

#include <vector>

#include "ops.h"

namespace rw::detail {

// Returns the axes that a reduction is given, in rising order, or all axes of x if none is given.
std::vector<int> reduced_axes(const Tensor& x, const Axes& axes, const char* op);
// `shape` without the (ascending) axes, or with 1 in their places.
Shape reduced_shape(const Shape& shape, const std::vector<int>& axes, bool keepdims);

// The gradient of a largest or smallest element, dy (the reduced axes have the size 1), in equal
// parts to the elements that are it: `hits` (u8) tells which. f32.
Tensor shared_among(const Tensor& hits, const Axes& axes, const Tensor& dy);

// Returns dy (the reduced axes have the size 1) times the product of the other elements along the
// axes, by products of pairs, of pairs of pairs, and so on: without a quotient it can be
// differentiated where elements are 0.
Tensor times_others(const Axes& axes, const Tensor& x, const Tensor& dy);

// A dense tensor as [outer, count, inner] around an axis.
struct Around {
  int64_t outer = 1, count, inner = 1;
  Around(const Shape& shape, int axis) : count(shape[axis]) {
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  }
};

}  // namespace rw::detail
