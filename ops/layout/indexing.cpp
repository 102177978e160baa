// Picks and puts elements by index. All elements are rows of a table, which one kernel finds.
#include "ops/layout/indexing.h"

#include <limits>
#include <numeric>

#include "core/autograd/gradient_op.h"
#include "ops/detail.h"
#include "ops/layout/index.h"
#include "ops/operators.h"
#include "ops/reduce.h"

namespace rw {

using namespace detail;

namespace {

struct IndexAttrs {
  int axis;
  PutMode mode = PutMode::add;  // of the gradient, or of what is scattered
};

// The rows that an index names along an axis of a dense tensor of `shape`. An index of the same
// rank names elements, one of rank 1 names slices.
Rows rows_of(const Tensor& index, const Shape& shape, int axis, bool slices) {
  const Around around(shape, axis);
  const int64_t inner = slices ? 1 : around.inner, count = index.size(slices ? 0 : axis);
  const int64_t n = around.outer * count * inner;
  const auto u = [](int64_t v) { return count32(v, "gather"); };
  check<ShapeError>(shape.numel() <= std::numeric_limits<int32_t>::max(), op_or("user"),
                    "places of x must fit i32, got {}", shape);
  Rows rows{empty_on(index, {n}, DType::i32), n, slices ? around.inner : 1,
            around.outer * around.count * inner};
  launch("flat_index", {in(contiguous(index)), out(rows.index)},
         kernels::FlatIndexParams{
             .n = u(n), .count = u(count), .inner = u(inner), .rows = u(around.count)},
         {.threads = {u(n), 1, 1}, .variant = {slices}});
  return rows;
}

// x's shape with the index's size along the axis.
Shape picked_shape(const Shape& x, const Tensor& index, int axis, bool slices) {
  Shape shape = x;
  shape[axis] = index.size(slices ? 0 : axis);
  return shape;
}

template <bool slices>
std::vector<Tensor> take_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const int axis = std::any_cast<const IndexAttrs&>(attrs).axis;
  const Tensor x = contiguous(inputs[0]);
  const Tensor y = take_rows(x, rows_of(inputs[1], x.shape(), axis, slices));
  return one(reshape(y, picked_shape(x.shape(), inputs[1], axis, slices)).detach());
}

template <bool slices>
std::vector<Tensor> take_vjp(Record& r, std::span<Tensor> dys) {
  const auto& [axis, mode] = r.attributes<IndexAttrs>();
  const Tensor dy = contiguous(std::exchange(dys[0], {}));
  const Shape& shape = r.inputs[0].shape;
  Tensor dx = full(shape, 0, DType::f32, dy.device().shared_from_this());
  put_rows(dy, rows_of(r.input(1), shape, axis, slices), dx, mode);
  return {std::move(dx), Tensor()};
}

const Op gather_op = {.name = "gather",
                      .forward = take_forward<false>,
                      .vjp = take_vjp<false>,
                      .saves = saves_always<2>,
                      .second = linear_second};
const Op index_select_op = {.name = "index_select",
                            .forward = take_forward<true>,
                            .vjp = take_vjp<true>,
                            .saves = saves_always<2>,
                            .second = linear_second};

// Inputs x, index, source.
template <bool slices>
std::vector<Tensor> put_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& [axis, mode] = std::any_cast<const IndexAttrs&>(attrs);
  Tensor& x = inputs[0];
  const DType dtype = x.dtype(), wide = is_float(dtype) ? DType::f32 : DType::i32;
  const Rows rows = rows_of(inputs[1], x.shape(), axis, slices);
  Tensor y = x.is_contiguous() ? reuse_or_empty(x, x.shape(), wide) : empty_on(x, x.shape(), wide);
  if (y.impl().storage != x.impl().storage) copy_into(x, y);
  const Tensor source = contiguous(is_float(dtype) ? inputs[2] : to_dtype(inputs[2], wide));
  put_rows(source, rows, y, mode);
  return one(to_dtype(y, dtype));
}

template <bool slices>
Tensor put(const char* name, Tensor x, int axis, Tensor index, Tensor source, PutMode mode);

template <bool slices>
std::vector<Tensor> put_vjp(Record& r, std::span<Tensor> dys) {
  const auto& [axis, mode] = r.attributes<IndexAttrs>();
  Tensor dy = std::exchange(dys[0], {});
  const Tensor& index = r.input(1);
  std::vector<Tensor> grads(3);
  if (r.needs_grad(2)) {
    const Rows rows = rows_of(index, r.inputs[0].shape, axis, slices);
    Tensor taken = take_rows(contiguous(dy), rows);
    // Elements that were replaced by later ones or lie outside had no effect.
    Tensor counts = greater_equal(rows.index, scalar_on(dy, 0, DType::i32));
    if (mode == PutMode::replace) counts = logical_and(counts, is_last_row(rows));
    const Tensor zero = scalar_on(dy, 0, dy.dtype());
    taken = where(unsqueeze(counts, 1), taken, zero);
    grads[2] = reshape(taken, r.inputs[2].shape);
  }
  if (!r.needs_grad(0)) return grads;
  if (mode == PutMode::replace) {
    Tensor zeros = expand(scalar_on(dy, 0, dy.dtype()), r.inputs[2].shape);
    dy = put<slices>("scatter", std::move(dy), axis, index, std::move(zeros), mode);
  }
  grads[0] = std::move(dy);
  return grads;
}

template <bool slices>
const Op put_ops[] = {{.name = slices ? "index_add" : "scatter_add",
                       .forward = put_forward<slices>,
                       .vjp = put_vjp<slices>,
                       .saves = saves_always<2>,
                       .second = linear_second},
                      {.name = slices ? "index_copy" : "scatter",
                       .forward = put_forward<slices>,
                       .vjp = put_vjp<slices>,
                       .saves = saves_always<2>,
                       .second = linear_second}};

void check_index(const char* op, const Tensor& x, int axis, const Tensor& index) {
  check<DTypeError>(index.dtype() == DType::i32, op, "the index must be i32, got {}", index);
  check_indices(op, "the index", index, x.size(axis) - 1);
}

template <bool slices>
Tensor put(const char* name, Tensor x, int axis, Tensor index, Tensor source, PutMode mode) {
  const AutocastInputs autocast(name, {&x, &source});
  check_index(name, x, axis, index);
  check<DTypeError>(source.dtype() == x.dtype(), name,
                    "x and the source must have one dtype, got {} and {}; cast one", x, source);
  const Op& op = put_ops<slices>[mode == PutMode::replace];
  return apply1(op, IndexAttrs{axis, mode}, std::move(x), std::move(index), std::move(source));
}

Tensor scatter_by(const char* op, Tensor x, int axis, Tensor index, Tensor source, PutMode mode) {
  axis = normalize_axis(axis, x.rank(), op);
  check<ShapeError>(index.shape() == source.shape(), op,
                    "the index must have the source's shape, got index {} and source {}", index,
                    source);
  check<ShapeError>(
      index.rank() == x.rank() && picked_shape(x.shape(), index, axis, false) == index.shape(), op,
      "the index must have x's sizes except along axis {}, got x {} and index {}", axis, x, index);
  return put<false>(op, std::move(x), axis, std::move(index), std::move(source), mode);
}

Tensor put_slices(const char* op, Tensor x, int axis, Tensor index, Tensor source, PutMode mode) {
  axis = normalize_axis(axis, x.rank(), op);
  check<ShapeError>(
      index.rank() == 1 && picked_shape(x.shape(), index, axis, true) == source.shape(), op,
      "needs an index [K] and a source of x's sizes with K along axis {}, got x {}, "
      "index {} and source {}",
      axis, x, index, source);
  return put<true>(op, std::move(x), axis, std::move(index), std::move(source), mode);
}

Tensor gather_by(const char* op, Tensor x, int axis, Tensor index, PutMode mode) {
  axis = normalize_axis(axis, x.rank(), op);
  check<ShapeError>(index.rank() == x.rank(), op,
                    "the index must have x's rank, got x {} and index {}", x, index);
  for (int i = 0; i < x.rank(); ++i) {
    if (i == axis) continue;
    check<ShapeError>(
        index.size(i) <= x.size(i), op,
        "the index must be no longer than x except along axis {}, got x {} and index {}", axis, x,
        index);
    if (index.size(i) < x.size(i)) x = slice(std::move(x), i, 0, index.size(i));
  }
  check_index(op, x, axis, index);
  return apply1(gather_op, IndexAttrs{axis, mode}, std::move(x), std::move(index));
}

}  // namespace

Tensor detail::gather_unique(Tensor x, int axis, Tensor index) {
  return gather_by("gather", std::move(x), axis, std::move(index), PutMode::unique);
}

Tensor gather(Tensor x, int axis, Tensor index) {
  return gather_by("gather", std::move(x), axis, std::move(index), PutMode::add);
}

Tensor take_along_axis(Tensor x, Tensor index, int axis) {
  axis = normalize_axis(axis, x.rank(), "take_along_axis");
  check<ShapeError>(index.rank() == x.rank(), "take_along_axis",
                    "the index must have x's rank, got x {} and index {}", x, index);
  const auto broadcast_along = [&](Tensor t, const Tensor& other) {
    Shape shape = t.shape();
    for (int i = 0; i < shape.rank(); ++i)
      if (i != axis && shape[i] == 1) shape[i] = other.size(i);
    return expand(std::move(t), shape);
  };
  index = broadcast_along(std::move(index), x);
  x = broadcast_along(std::move(x), index);
  return gather_by("take_along_axis", std::move(x), axis, std::move(index), PutMode::add);
}

Tensor scatter(Tensor x, int axis, Tensor index, Tensor source) {
  return scatter_by("scatter", std::move(x), axis, std::move(index), std::move(source),
                    PutMode::replace);
}

Tensor scatter(Tensor x, int axis, Tensor index, float value) {
  Tensor source = expand(scalar_on(x, value, x.dtype()), index.shape());
  return scatter(std::move(x), axis, std::move(index), std::move(source));
}

Tensor scatter_add(Tensor x, int axis, Tensor index, Tensor source) {
  return scatter_by("scatter_add", std::move(x), axis, std::move(index), std::move(source),
                    PutMode::add);
}

namespace {

Tensor select_by(Tensor x, int axis, Tensor index, PutMode mode) {
  axis = normalize_axis(axis, x.rank(), "index_select");
  check<ShapeError>(index.rank() == 1, "index_select", "needs an index [K], got {}", index);
  check_index("index_select", x, axis, index);
  return apply1(index_select_op, IndexAttrs{axis, mode}, std::move(x), std::move(index));
}

}  // namespace

Tensor index_select(Tensor x, int axis, Tensor index) {
  return select_by(std::move(x), axis, std::move(index), PutMode::add);
}

Tensor flip(Tensor x, const Axes& axes) {
  const DeviceScope scope(x.device().shared_from_this());
  Axes turned = normalize_axes(axes, x.rank(), "flip");
  for (int i = 0; axes.empty() && i < x.rank(); ++i) turned.push_back(i);
  for (const int axis : turned) {
    std::vector<int32_t> backward(static_cast<size_t>(x.size(axis)));
    std::iota(backward.rbegin(), backward.rend(), 0);
    Tensor index = tensor(std::span<const int32_t>(backward), {x.size(axis)});
    x = select_by(std::move(x), axis, std::move(index), PutMode::unique);
  }
  return x;
}

namespace {

// The places where x is not 0: i32 [count].
Tensor nonzero_places(const char* op, const Tensor& x) {
  check<DeviceError>(!x.device().backend().is_dry(), op,
                     "the result's shape depends on values, which a dry run does not have; where() "
                     "and masked_fill() keep the shape");
  const NoGrad guard;
  const Tensor flat = reshape(x, {x.numel()}) != 0;
  if (x.numel() == 0) return empty_on(x, {0}, DType::i32);
  const int64_t count = sum(flat).to_ints()[0];
  // The order is stable: the ones come first, in their order.
  return slice(argsort(flat, 0, true), 0, 0, count);
}

}  // namespace

Tensor nonzero(const Tensor& x) {
  Tensor place = nonzero_places("nonzero", x);
  if (x.rank() == 0) return empty_on(x, {place.numel(), 0}, DType::i32);
  std::vector<Tensor> coordinates(static_cast<size_t>(x.rank()));
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    const int64_t size = std::max<int64_t>(1, x.size(axis));
    Tensor line = place / size;
    coordinates[static_cast<size_t>(axis)] = place - line * size;
    place = std::move(line);
  }
  return stack(std::move(coordinates), 1);
}

Tensor masked_select(Tensor x, Tensor mask) {
  check<DTypeError>(mask.dtype() == DType::u8, "masked_select", "the mask must be u8, got {}",
                    mask);
  const Shape shape = broadcast(x.shape(), mask.shape(), "masked_select");
  Tensor places = nonzero_places("masked_select", expand(std::move(mask), shape));
  x = reshape(expand(std::move(x), shape), {shape.numel()});
  return select_by(std::move(x), 0, std::move(places), PutMode::unique);
}

Tensor index_add(Tensor x, int axis, Tensor index, Tensor source) {
  return put_slices("index_add", std::move(x), axis, std::move(index), std::move(source),
                    PutMode::add);
}
Tensor index_copy(Tensor x, int axis, Tensor index, Tensor source) {
  return put_slices("index_copy", std::move(x), axis, std::move(index), std::move(source),
                    PutMode::replace);
}

Tensor Tensor::operator[](std::initializer_list<Index> indices) const {
  int named = 0;
  bool has_ellipsis = false;
  for (const Index& index : indices) {
    named += std::holds_alternative<int64_t>(index) || std::holds_alternative<Slice>(index);
    check<ShapeError>(!has_ellipsis || !std::holds_alternative<Ellipsis>(index), "index",
                      "there can be one ellipsis, got two");
    has_ellipsis |= std::holds_alternative<Ellipsis>(index);
  }
  check<ShapeError>(named <= rank(), "index", "needs at most {} indices for {}, got {}", rank(),
                    *this, named);
  Tensor y = *this;
  int axis = 0;
  for (const Index& index : indices) {
    if (const auto* place = std::get_if<int64_t>(&index)) {
      y = select(std::move(y), axis, *place);
    } else if (const auto* range = std::get_if<Slice>(&index)) {
      check<ShapeError>(range->step > 0, "index", "steps must be positive, got {}", range->step);
      const int64_t size = y.size(axis);
      const auto bound = [size](int64_t at) {
        return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
      };
      const int64_t begin = bound(range->begin.value_or(0)), end = bound(range->end.value_or(size));
      y = slice(std::move(y), axis++, begin, std::max(begin, end), range->step);
    } else if (std::holds_alternative<NewAxis>(index)) {
      y = unsqueeze(std::move(y), axis++);
    } else {
      axis += rank() - named;
    }
  }
  return y;
}

}  // namespace rw
