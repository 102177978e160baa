// Diagonals, triangles, repetitions and windows, composed of views, copies and the ops of
// indexing.h.
#include <cmath>
#include <limits>
#include <numeric>

#include "core/autograd/gradient_op.h"
#include "core/base/checked.h"
#include "ops/detail.h"
#include "ops/layout/index.h"
#include "ops/layout/indexing.h"
#include "ops/operators.h"
#include "ops/reduce.h"

namespace rw {

using namespace detail;

namespace {

// ---- unfold: a view whose windows overlap
struct UnfoldAttrs {
  int axis;
  int64_t size, step;
};

std::vector<Tensor> unfold_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& [axis, size, step] = std::any_cast<const UnfoldAttrs&>(attrs);
  const Tensor& x = inputs[0];
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape[axis] = (x.size(axis) - size) / step + 1;
  shape.push_back(size);
  strides.push_back(strides[axis]);
  strides[axis] *= step;
  return one(make_view(x, shape, strides, x.impl().offset));
}

// Every place adds up the windows that contained it.
std::vector<Tensor> unfold_vjp(Record& r, std::span<Tensor> dys) {
  const auto& [axis, size, step] = r.attributes<UnfoldAttrs>();
  Tensor dy = std::exchange(dys[0], {});
  const int64_t windows = dy.size(axis);
  std::vector<int32_t> places;
  for (int64_t w = 0; w < windows; ++w)
    for (int64_t i = 0; i < size; ++i) places.push_back(static_cast<int32_t>(w * step + i));
  Axes order(static_cast<size_t>(dy.rank() - 1));
  std::iota(order.begin(), order.end(), 0);
  order.insert(order.begin() + axis + 1, dy.rank() - 1);
  Shape merged = r.inputs[0].shape;
  merged[axis] = windows * size;
  dy = reshape(permute(std::move(dy), order), merged);
  const DeviceScope device(dy.device().shared_from_this());
  Tensor dx = full(r.inputs[0].shape, 0, dy.dtype());
  const Tensor index = tensor(std::span<const int32_t>(places), {windows * size});
  return one(index_add(std::move(dx), axis, index, std::move(dy)));
}

const Op unfold_op = {.name = "unfold",
                      .forward = unfold_forward,
                      .vjp = unfold_vjp,
                      .is_view = true,
                      .second = linear_second};

// Makes a tensor of value(0), value(1), ..., n of them, in pieces, so that the host never holds all
// of them.
template <class T, class F>
Tensor sequence(const char* op, int64_t n, DType dtype, const F& value) {
  check_sizes(op, {n}, size_of(dtype));
  Tensor t = empty({n}, dtype);
  constexpr int64_t piece = 1 << 20;
  std::vector<T> values;
  for (int64_t first = 0; first < n; first += piece) {
    values.clear();
    for (int64_t i = first; i < std::min(n, first + piece); ++i) values.push_back(value(i));
    const Shape count = {static_cast<int64_t>(values.size())};
    make_view(t, count, {1}, first).copy_from(std::span<const T>(values));
  }
  return t;
}

// x's sizes, with one axis `times` as large. Throws ShapeError if no tensor can be that large.
Shape times_longer(const char* op, const Tensor& x, int axis, int64_t times) {
  Shape shape = x.shape();
  const auto size = checked_mul(shape[axis], times);
  check<ShapeError>(size.has_value(), op, "64 bits must hold the size of axis {}, got {} times {}",
                    axis, times, x);
  shape[axis] = *size;
  check_sizes(op, shape, size_of(x.dtype()));
  return shape;
}

// [rows, columns]: the column minus the row.
Tensor columns_past_diagonal(int64_t rows, int64_t columns, const Tensor& like) {
  const DeviceScope device(like.device().shared_from_this());
  return arange(columns) - unsqueeze(arange(rows), 1);
}

Tensor triangle(const char* op, Tensor x, int64_t diagonal, bool lower) {
  check<ShapeError>(x.rank() >= 2, op, "needs at least two axes, got {}", x);
  const Tensor past = columns_past_diagonal(x.size(-2), x.size(-1), x);
  return masked_fill(std::move(x), lower ? past > diagonal : past < diagonal, 0);
}

// A vector on the main diagonal: the matrix is rows of n + 1 places, each of which begins with an
// element.
Tensor diagonal_matrix(Tensor x) {
  const int64_t n = x.size(0);
  return reshape(slice(flatten(pad(unsqueeze(std::move(x), 1), {0, 0}, {0, n})), 0, 0, n * n),
                 {n, n});
}

}  // namespace

Tensor tril(Tensor x, int64_t diagonal) {
  return triangle("tril", std::move(x), diagonal, true);
}
Tensor triu(Tensor x, int64_t diagonal) {
  return triangle("triu", std::move(x), diagonal, false);
}

Tensor diag(Tensor x, int64_t diagonal) {
  check<ShapeError>(x.rank() == 1 || x.rank() == 2, "diag", "needs a vector or a matrix, got {}",
                    x);
  if (x.rank() == 2) return rw::diagonal(std::move(x), diagonal);
  const int64_t right = std::max<int64_t>(diagonal, 0), down = std::max<int64_t>(-diagonal, 0);
  return pad(diagonal_matrix(std::move(x)), {down, right}, {right, down});
}

Tensor diagonal(Tensor x, int64_t offset, int first, int second) {
  first = normalize_axis(first, x.rank(), "diagonal");
  second = normalize_axis(second, x.rank(), "diagonal");
  check<ShapeError>(first != second, "diagonal", "needs two axes, got {} twice", first);
  Axes order;
  for (int i = 0; i < x.rank(); ++i)
    if (i != first && i != second) order.push_back(i);
  order.push_back(first), order.push_back(second);
  x = permute(std::move(x), order);
  const int64_t rows = x.size(-2), columns = x.size(-1);
  const int64_t down = std::min(std::max<int64_t>(-offset, 0), rows);
  const int64_t right = std::min(std::max<int64_t>(offset, 0), columns);
  const int64_t n = std::min(rows - down, columns - right);
  x = slice(slice(std::move(x), -1, right, columns), -2, down, down + n);
  const int64_t step = columns - right + 1;
  return slice(flatten(std::move(x), -2, -1), -1, 0, n == 0 ? 0 : (n - 1) * step + 1, step);
}

Tensor eye(int64_t rows, int64_t columns, DType dtype) {
  if (columns < 0) columns = rows;
  check<ShapeError>(rows >= 0, "eye", "sizes must not be negative, got ({})", rows);
  check_sizes("eye", {rows, columns}, size_of(dtype));
  Tensor y = full({rows, columns}, 0, dtype);
  const int64_t n = std::min(rows, columns);
  copy_into(expand(scalar_on(y, 1, dtype), Shape{n}), make_view(y, {n}, {columns + 1}, 0));
  return y;
}

Tensor linspace(float begin, float end, int64_t n, DType dtype) {
  check<ShapeError>(n >= 0, "linspace", "the size must not be negative, got ({})", n);
  return sequence<float>("linspace", n, dtype, [&](int64_t i) {
    const double share = n == 1 ? 0 : static_cast<double>(i) / static_cast<double>(n - 1);
    return static_cast<float>(begin + share * (double{end} - begin));
  });
}

Tensor arange(int64_t begin, int64_t end, int64_t step) {
  check(step != 0, "arange", "the step must not be 0");
  const bool is_empty = step > 0 ? begin >= end : begin <= end;
  if (is_empty) return empty({0}, DType::i32);
  constexpr int64_t least = std::numeric_limits<int32_t>::min(),
                    most = std::numeric_limits<int32_t>::max();
  check(begin >= least && begin <= most && end >= least - 1 && end <= most + 1, "arange",
        "values must fit i32, got {} to {}", begin, end);
  const int64_t distance = std::abs(end - begin);
  const int64_t count =
      step > -distance && step < distance ? (distance - 1) / std::abs(step) + 1 : 1;
  return sequence<int32_t>("arange", count, DType::i32,
                           [&](int64_t i) { return static_cast<int32_t>(begin + i * step); });
}

Tensor one_hot(Tensor index, int64_t classes, DType dtype) {
  check<DTypeError>(index.dtype() == DType::i32, "one_hot", "the index must be i32, got {}", index);
  check<ShapeError>(classes > 0, "one_hot", "needs at least one class, got {}", classes);
  Shape shape = index.shape();
  shape.push_back(classes);
  check_sizes("one_hot", shape, size_of(dtype));
  check_indices("one_hot", "the index", index, classes - 1);
  const DeviceScope device(index.device().shared_from_this());
  return cast(unsqueeze(std::move(index), -1) == arange(classes), dtype);
}

Tensor repeat(Tensor x, const std::vector<int64_t>& times) {
  const int more = static_cast<int>(times.size()) - x.rank();
  check<ShapeError>(more >= 0, "repeat", "needs a count per axis of {}, got {}", x, times.size());
  Shape shape;
  for (int i = 0; i < more; ++i) shape.push_back(1);
  for (const int64_t size : x.shape()) shape.push_back(size);
  x = reshape(std::move(x), shape);
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const int64_t count = times[static_cast<size_t>(axis)];
    check<ShapeError>(count >= 0, "repeat", "counts must not be negative, got {}", count);
    if (count == 1) continue;
    const Around around(shape, axis);
    const int64_t line = around.count * around.inner;
    shape = times_longer("repeat", x, axis, count);
    x = expand(reshape(std::move(x), {around.outer, 1, line}), Shape{around.outer, count, line});
    x = reshape(std::move(x), shape);
  }
  return x;
}

Tensor tile(Tensor x, const std::vector<int64_t>& times) {
  std::vector<int64_t> counts = times;
  while (static_cast<int>(counts.size()) < x.rank()) counts.insert(counts.begin(), 1);
  return repeat(std::move(x), counts);
}

Tensor repeat_interleave(Tensor x, int64_t times, int axis) {
  axis = normalize_axis(axis, x.rank(), "repeat_interleave");
  check<ShapeError>(times >= 0, "repeat_interleave", "the count must not be negative, got {}",
                    times);
  const Shape shape = times_longer("repeat_interleave", x, axis, times);
  const Around around(x.shape(), axis);
  const int64_t places = around.outer * around.count;
  x = expand(reshape(std::move(x), {places, 1, around.inner}), Shape{places, times, around.inner});
  return reshape(std::move(x), shape);
}

Tensor roll(Tensor x, int64_t shift, int axis) {
  axis = normalize_axis(axis, x.rank(), "roll");
  const int64_t size = x.size(axis);
  if (size == 0) return x;
  shift = (shift % size + size) % size;
  if (shift == 0) return x;
  Tensor end = slice(x, axis, size - shift, size),
         begin = slice(std::move(x), axis, 0, size - shift);
  return concat({std::move(end), std::move(begin)}, axis);
}

Tensor unfold(Tensor x, int axis, int64_t size, int64_t step) {
  axis = normalize_axis(axis, x.rank(), "unfold");
  check<ShapeError>(size > 0 && step > 0 && size <= x.size(axis), "unfold",
                    "needs 0 < size <= {} and step > 0, got size {} and step {} for axis {} of {}",
                    x.size(axis), size, step, axis, x);
  return apply1(unfold_op, UnfoldAttrs{axis, size, step}, std::move(x));
}

std::vector<Tensor> chunk(Tensor x, int64_t parts, int axis) {
  check<ShapeError>(parts > 0, "chunk", "needs at least one part, got {}", parts);
  const int64_t size = std::max<int64_t>((x.size(axis) + parts - 1) / parts, 1);
  return split(std::move(x), size, axis);
}

}  // namespace rw
