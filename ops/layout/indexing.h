// Picking elements by index, sorting, and other ways to rearrange axes. rewind.h includes this
// header; the library's other headers do not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "../ops.h"

namespace rw {

// Indices are i32 and count from 0. Those outside the axis give NaN (integers: -1; u8: 255), write
// nothing and get no gradient; with REWIND_CHECK_INDICES=1 they are errors (ops/ops.h). If an index
// repeats, additions happen in the order of the index, and the last replacement always wins.

//! op: gather   in: any
// y has the index's shape: y[.., i, ..] = x[.., index[.., i, ..], ..] along the axis. The index has
// the rank of x and is at most as long as x along other axes. As torch.gather and, with the index
// broadcast along other axes, numpy.take_along_axis.
Tensor gather(Tensor x, int axis, Tensor index);
//! op: take_along_axis   torch: take_along_dim   in: any
Tensor take_along_axis(Tensor x, Tensor index, int axis);
//! op: scatter   autocast: keep   in: any
// x with source[.., i, ..] written to, or added to, x[.., index[.., i, ..], ..]. The index has the
// source's shape, and along other axes that of x.
Tensor scatter(Tensor x, int axis, Tensor index, Tensor source);
//! op: scatter_value   torch: scatter   autocast: scatter   in: any
Tensor scatter(Tensor x, int axis, Tensor index, float value);
//! op: scatter_add   autocast: keep   in: any
Tensor scatter_add(Tensor x, int axis, Tensor index, Tensor source);

//! op: index_select   in: any
// The K places of an axis that the index [K] names, in its order.
Tensor index_select(Tensor x, int axis, Tensor index);
//! op: index_add index_copy   autocast: keep   in: any
// x with slice k of the source added to, or written to, slice index[k] along the axis.
Tensor index_add(Tensor x, int axis, Tensor index, Tensor source);
Tensor index_copy(Tensor x, int axis, Tensor index, Tensor source);

//! op: nonzero   in: any   order: 0
// The places where x is not 0, in the order of its elements: i32 [count, rank], and the elements
// there: [count]. Both wait for the device, because the shape depends on the values; so they cannot
// run on a dry device (DeviceError). where() and masked_fill() keep the shape.
Tensor nonzero(const Tensor& x);
//! op: masked_select   in: any
// The mask (u8) is broadcast to x.
Tensor masked_select(Tensor x, Tensor mask);

// The values along an axis in order, and where they were: i32. The sort is stable, and NaN is the
// largest. The gradient goes back to where the values were.
struct SortResult {
  Tensor values, indices;  // of x's shape, but along the axis of topk
};
//! op: sort   in: any
SortResult sort(Tensor x, int axis = -1, bool descending = false);
//! op: argsort   in: any   order: 0
Tensor argsort(Tensor x, int axis = -1, bool descending = false);
//! op: topk   in: any
// The k largest (or smallest) along an axis, the most extreme first. ShapeError unless 0 <= k <=
// its size.
SortResult topk(Tensor x, int64_t k, int axis = -1, bool largest = true);

//! op: one_hot   in: i32   order: 0
// 1 at the index's place of a new last axis with `classes` places, 0 elsewhere.
Tensor one_hot(Tensor index, int64_t classes, DType dtype = DType::f32);

//! op: tril triu   in: any
// The elements of the last two axes on and below (tril) or above (triu) the diagonal that lies
// `diagonal` places to the right of the main one; 0 elsewhere.
Tensor tril(Tensor x, int64_t diagonal = 0);
Tensor triu(Tensor x, int64_t diagonal = 0);
//! op: diag   in: any
// Turns a vector into the square matrix with it on a diagonal, and a matrix into that diagonal.
Tensor diag(Tensor x, int64_t diagonal = 0);
//! op: diagonal   in: any
// The diagonal of two axes, as a last axis in their place.
Tensor diagonal(Tensor x, int64_t offset = 0, int first = 0, int second = 1);
//! op: eye   in: none   order: 0
// 1 on the diagonal and 0 elsewhere, [rows, columns]; columns = -1 means as many as rows.
Tensor eye(int64_t rows, int64_t columns = -1, DType dtype = DType::f32);
//! op: linspace   in: none   order: 0
// n numbers, evenly spaced from begin to end, both included.
Tensor linspace(float begin, float end, int64_t n, DType dtype = DType::f32);
//! op: arange_step   torch: arange   in: none   order: 0
// begin, begin + step, ... up to but not including end, as i32. ValueError for a step of 0.
Tensor arange(int64_t begin, int64_t end, int64_t step = 1);

//! op: repeat tile repeat_interleave   in: any
// repeat repeats the whole tensor along each axis (with new first axes if there are more counts
// than axes), as torch.repeat and torch.tile; repeat_interleave repeats each element along an axis.
Tensor repeat(Tensor x, const std::vector<int64_t>& times);
Tensor tile(Tensor x, const std::vector<int64_t>& times);  // axes without a count: once
Tensor repeat_interleave(Tensor x, int64_t times, int axis);
//! op: flip   in: any
// Reverses the order along the axes, or along all if none is given.
Tensor flip(Tensor x, const Axes& axes = {});
//! op: roll   in: any
// Shifts the places along the axis by `shift`, from the end to the beginning.
Tensor roll(Tensor x, int64_t shift, int axis);
//! op: unfold   in: any
// Windows of `size` places at every `step`-th place of the axis, whose size becomes their number;
// the window is a new last axis. This is a view: windows that overlap share elements.
Tensor unfold(Tensor x, int axis, int64_t size, int64_t step);
//! op: chunk   in: any
// At most `parts` views along an axis, of equal size except for the last one.
std::vector<Tensor> chunk(Tensor x, int64_t parts, int axis);
//! op: einsum
// As numpy.einsum, with or without ->, for one or more operands (contracted from the left):
// letters, `...`, diagonals ("ii->i"). Products are matmul's. ValueError for a malformed equation,
// ShapeError if sizes differ.
Tensor einsum(std::string_view equation, TensorList operands);

namespace detail {
// gather() with an index that names no place of a line twice.
Tensor gather_unique(Tensor x, int axis, Tensor index);
}  // namespace detail

}  // namespace rw
