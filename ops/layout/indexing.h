// Picking elements by index, sorting, and what puts axes together in other ways. Included by nobody
// but who uses it; rewind.h has it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "../ops.h"

namespace rw {

// Indices are i32 and count from 0. Those outside the axis give NaN (integers: -1; u8: 255), write
// nothing and get no gradient; with REWIND_CHECK_INDICES=1 they are errors (ops/ops.h). Where
// an index repeats, additions happen in the order of the index and the last one replaces, always.

// y has the index's shape: y[.., i, ..] = x[.., index[.., i, ..], ..] along the axis. The index is
// of x's rank, and along other axes no longer than x. As torch.gather and, with the index broadcast
// along other axes, numpy.take_along_axis.
Tensor gather(Tensor x, int axis, Tensor index);
Tensor take_along_axis(Tensor x, Tensor index, int axis);
// x with source[.., i, ..] in place of, or added to, x[.., index[.., i, ..], ..]. The index has the
// source's shape, and along other axes x's.
Tensor scatter(Tensor x, int axis, Tensor index, Tensor source);
Tensor scatter(Tensor x, int axis, Tensor index, float value);
Tensor scatter_add(Tensor x, int axis, Tensor index, Tensor source);

// The places of an axis that the index [K] names, in its order; K of them.
Tensor index_select(Tensor x, int axis, Tensor index);
// x with slice k of the source added to, or put in place of, slice index[k] along the axis.
Tensor index_add(Tensor x, int axis, Tensor index, Tensor source);
Tensor index_copy(Tensor x, int axis, Tensor index, Tensor source);

// Where x is not 0, in the order of its elements: i32 [count, rank], and the elements there:
// [count]. These two wait for the device, as the shape depends on the values; so a dry run cannot
// know it (DeviceError): where() or masked_fill() keep the shape.
Tensor nonzero(const Tensor& x);
// The mask (u8) is broadcast to x.
Tensor masked_select(Tensor x, Tensor mask);

// Values along an axis in order, and where they were: i32. Stable; NaN is the largest. The gradient
// goes back to where the values were.
struct SortResult {
  Tensor values, indices;  // of x's shape, but along the axis of topk
};
SortResult sort(Tensor x, int axis = -1, bool descending = false);
Tensor argsort(Tensor x, int axis = -1, bool descending = false);
// The k largest (or smallest) along an axis, the most extreme first. ShapeError unless 0 <= k <=
// its size.
SortResult topk(Tensor x, int64_t k, int axis = -1, bool largest = true);

// 1 at the index's place of a new last axis of `classes` places, 0 elsewhere.
Tensor one_hot(Tensor index, int64_t classes, DType dtype = DType::f32);

// The last two axes' elements on and below (tril) or above (triu) the diagonal that many places
// right of the main one; 0 elsewhere.
Tensor tril(Tensor x, int64_t diagonal = 0);
Tensor triu(Tensor x, int64_t diagonal = 0);
// Turns a vector into the square matrix with it on a diagonal, and a matrix into that diagonal.
Tensor diag(Tensor x, int64_t diagonal = 0);
// The diagonal of two axes, as a last axis in their place.
Tensor diagonal(Tensor x, int64_t offset = 0, int first = 0, int second = 1);
// 1 on the diagonal, 0 elsewhere, [rows, columns]; columns -1: as many as rows.
Tensor eye(int64_t rows, int64_t columns = -1, DType dtype = DType::f32);
// n numbers, evenly from begin to end, both included.
Tensor linspace(float begin, float end, int64_t n, DType dtype = DType::f32);
// begin, begin + step, ... up to but without end, as i32. ValueError for a step of 0.
Tensor arange(int64_t begin, int64_t end, int64_t step = 1);

// The whole tensor so often along each axis (new first axes where there are more counts than axes):
// torch.repeat and torch.tile. Each element so often along an axis: repeat_interleave.
Tensor repeat(Tensor x, const std::vector<int64_t>& times);
Tensor tile(Tensor x, const std::vector<int64_t>& times);  // axes without a count: once
Tensor repeat_interleave(Tensor x, int64_t times, int axis);
// The order along the axes turned round; all where none is given.
Tensor flip(Tensor x, const Axes& axes = {});
// Places along the axis moved on by `shift`, from the end to the beginning.
Tensor roll(Tensor x, int64_t shift, int axis);
// Windows of `size` places at every `step`-th place of the axis, which counts them then; the window
// is a new last axis. A view: windows that overlap share elements.
Tensor unfold(Tensor x, int axis, int64_t size, int64_t step);
// At most `parts` views along an axis, of equal size but for the last one.
std::vector<Tensor> chunk(Tensor x, int64_t parts, int axis);
// As numpy.einsum, with -> or without, of one operand or more (contracted from the left): letters,
// `...`, diagonals ("ii->i"). Products are matmul's. ValueError for what does not read as one,
// ShapeError where sizes differ.
Tensor einsum(std::string_view equation, TensorList operands);

namespace detail {
// gather() with an index that names no place of a line twice.
Tensor gather_unique(Tensor x, int axis, Tensor index);
}  // namespace detail

}  // namespace rw
