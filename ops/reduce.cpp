// Reductions over any axes. The order of additions depends on the shape and the device.
#include "ops/reduce.h"

#include "ops/detail.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

enum ReduceKind : uint32_t { reduce_sum, reduce_max, reduce_min, reduce_prod };

struct ReduceAttrs {
  ReduceKind kind;
  std::vector<int> axes;  // normalised, ascending
  bool keepdims;
  float scale;
  DType dtype;  // of the result
};

std::vector<Tensor> reduce_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const ReduceAttrs&>(attrs);
  Tensor x = inputs[0];
  const Shape result = reduced_shape(x.shape(), a.axes, a.keepdims);
  int64_t count = 1, inner = 1;
  for (int axis : a.axes) count *= x.shape()[axis];
  if (x.numel() == 0) {
    constexpr float inf = std::numeric_limits<float>::infinity();
    // The scale of the mean is infinite here, and the mean of nothing is NaN.
    const float empty_values[] = {0 * a.scale, -inf, inf, 1};
    return one(full(result, empty_values[a.kind], a.dtype, x.device().shared_from_this()));
  }
  // The reduced axes must be neighbours: as they are, or after a move to the end.
  if (!a.axes.empty() && a.axes.back() - a.axes.front() + 1 == static_cast<int>(a.axes.size())) {
    for (int i = a.axes.back() + 1; i < x.rank(); ++i) inner *= x.shape()[i];
  } else {
    Axes order;
    for (int i = 0; i < x.rank(); ++i)
      if (!std::binary_search(a.axes.begin(), a.axes.end(), i)) order.push_back(i);
    order.insert(order.end(), a.axes.begin(), a.axes.end());
    x = permute(x, order);
  }
  x = contiguous(x);
  const int64_t outer = x.numel() / (count * inner);
  Tensor y = empty_on(x, result, a.dtype);
  const auto u = [](int64_t n) { return count32(n, "reduce"); };
  launch("reduce", {in(x), out(y)},
         kernels::ReduceParams{.outer = u(outer),
                               .count = u(count),
                               .inner = u(inner),
                               .chunk = u(count),
                               .scale = a.scale},
         {.variant = {a.kind}});
  return one(std::move(y));
}

// dy with the reduced axes restored as size 1.
Tensor keep_axes(const Record& r, const Tensor& dy) {
  return reshape(dy, reduced_shape(r.inputs[0].shape, r.attributes<ReduceAttrs>().axes, true));
}

// dy times the product of the other elements: y / x, or the product itself where x is the only 0.
Tensor prod_gradient(const Axes& axes, const Tensor& x, const Tensor& y, const Tensor& dy) {
  const Tensor is_zero = x == 0;
  const Tensor zeros = sum(cast(is_zero, DType::i32), axes, true);
  const Tensor others = prod(masked_fill(x, is_zero, 1), axes, true);
  const Tensor of_one_zero = logical_and(is_zero, zeros == 1);
  const Tensor rest = masked_fill(y / x, is_zero, 0);
  return dy * where(of_one_zero, others, rest);
}

std::vector<Tensor> reduce_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<ReduceAttrs>();
  const Shape& shape = r.inputs[0].shape;
  const Tensor dy = keep_axes(r, dys[0]);
  if (a.kind == reduce_sum) return one(expand(a.scale == 1 ? dy : dy * a.scale, shape));
  const Tensor &x = r.input(0), y = keep_axes(r, r.output(0));
  if (a.kind == reduce_prod) return one(prod_gradient(a.axes, x, y, dy));
  const Tensor hit = cast(equal(x, y), dy.dtype());
  return one(hit * (dy / sum(hit, a.axes, true)));
}

Saves reduce_saves(const std::any& attrs, uint32_t) {
  return std::any_cast<const ReduceAttrs&>(attrs).kind == reduce_sum ? Saves{} : Saves{1, 1};
}

const Op reduce_ops[] = {{"sum", reduce_forward, reduce_vjp, reduce_saves},
                         {"max", reduce_forward, reduce_vjp, reduce_saves},
                         {"min", reduce_forward, reduce_vjp, reduce_saves},
                         {"prod", reduce_forward, reduce_vjp, reduce_saves}};

Tensor reduce(ReduceKind kind, Tensor x, std::vector<int> axes, bool keepdims, float scale = 1,
              bool in_f32 = false) {
  if (x.dtype() == DType::u8) x = cast(std::move(x), DType::i32);
  const DType dtype = in_f32 && is_float(x.dtype()) ? DType::f32 : x.dtype();
  return apply1(reduce_ops[kind], ReduceAttrs{kind, std::move(axes), keepdims, scale, dtype},
                std::move(x));
}

// Reduces as the public functions do: over all axes if none is given.
Tensor reduce_over(ReduceKind kind, Tensor x, const Axes& axes, bool keepdims) {
  const AutocastInputs autocast(reduce_ops[kind].name, {&x}, true);
  std::vector<int> reduced = reduced_axes(x, axes, reduce_ops[kind].name);
  return reduce(kind, std::move(x), std::move(reduced), keepdims, 1, autocast.is_f32());
}

struct ArgAttrs {
  int axis;
  uint32_t kind;
};

std::vector<Tensor> arg_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const ArgAttrs&>(attrs);
  const Tensor x = contiguous(inputs[0]);
  const Around around(x.shape(), a.axis);
  Tensor y = empty_on(x, reduced_shape(x.shape(), {a.axis}, false), DType::i32);
  const uint32_t threads = count32(around.outer * around.inner, "argmax");
  launch("argreduce", {in(x), out(y)},
         kernels::ArgReduceParams{.outer = count32(around.outer, "argmax"),
                                  .count = count32(around.count, "argmax"),
                                  .inner = count32(around.inner, "argmax")},
         {.threads = {threads, 1, 1}, .variant = {a.kind}});
  return one(std::move(y));
}

const Op arg_ops[] = {{"argmax", arg_forward}, {"argmin", arg_forward}};

Tensor arg(uint32_t kind, Tensor x, int axis) {
  axis = normalize_axis(axis, x.rank(), arg_ops[kind].name);
  check<ShapeError>(x.shape()[axis] > 0, arg_ops[kind].name, "axis {} must not be empty, got {}",
                    axis, x);
  return apply1(arg_ops[kind], ArgAttrs{axis, kind}, std::move(x));
}

}  // namespace

std::vector<int> detail::reduced_axes(const Tensor& x, const Axes& axes, const char* op) {
  if (!axes.empty()) return normalize_axes(axes, x.rank(), op);
  std::vector<int> all;
  for (int i = 0; i < x.rank(); ++i) all.push_back(i);
  return all;
}

Shape detail::reduced_shape(const Shape& shape, const std::vector<int>& axes, bool keepdims) {
  Shape out;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), i);
    if (!reduced)
      out.push_back(shape[i]);
    else if (keepdims)
      out.push_back(1);
  }
  return out;
}

Tensor sum(Tensor x, const Axes& axes, bool keepdims) {
  return reduce_over(reduce_sum, std::move(x), axes, keepdims);
}
Tensor max(Tensor x, const Axes& axes, bool keepdims) {
  return reduce_over(reduce_max, std::move(x), axes, keepdims);
}
Tensor min(Tensor x, const Axes& axes, bool keepdims) {
  return reduce_over(reduce_min, std::move(x), axes, keepdims);
}
Tensor prod(Tensor x, const Axes& axes, bool keepdims) {
  return reduce_over(reduce_prod, std::move(x), axes, keepdims);
}

Tensor mean(Tensor x, const Axes& axes, bool keepdims) {
  const AutocastInputs autocast("mean", {&x}, true);
  check_float(x, "mean");
  auto reduced = reduced_axes(x, axes, "mean");
  int64_t count = 1;
  for (int axis : reduced) count *= x.shape()[axis];
  return reduce(reduce_sum, std::move(x), std::move(reduced), keepdims,
                1.0f / static_cast<float>(count), autocast.is_f32());
}

Tensor var(Tensor x, const Axes& axes, bool unbiased, bool keepdims) {
  const AutocastInputs autocast("var", {&x});
  int64_t count = 1;
  for (int axis : reduced_axes(x, axes, "var")) count *= x.shape()[axis];
  Tensor center = mean(x, axes, true);
  Tensor squares = square(sub(std::move(x), std::move(center)));
  const float correction =
      unbiased ? static_cast<float>(count) / static_cast<float>(count - 1) : 1.0f;
  return mean(std::move(squares), axes, keepdims) * correction;
}

Tensor argmax(Tensor x, int axis) {
  return arg(0, std::move(x), axis);
}
Tensor argmin(Tensor x, int axis) {
  return arg(1, std::move(x), axis);
}

Tensor sum_to(Tensor x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int lead = x.rank() - shape.rank();
  std::vector<int> axes;
  for (int i = 0; i < x.rank(); ++i)
    if (i < lead || (shape[i - lead] == 1 && x.shape()[i] != 1)) axes.push_back(i);
  const bool keeps = static_cast<int>(axes.size()) > lead;  // axes of size 1 among those of `shape`
  if (!axes.empty()) x = reduce(reduce_sum, std::move(x), std::move(axes), keeps, 1, true);
  return reshape(std::move(x), shape);
}

}  // namespace rw
