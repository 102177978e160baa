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
Tensor prod_gradient(const Axes& axes, const Tensor& x, const Tensor& dy) {
  const Tensor y = prod(x, axes, true);  // unlike the output, not rounded to 16 bits
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
  if (a.kind == reduce_sum) return one(expand(a.scale == 1 ? dy : wide(dy) * a.scale, shape));
  const Tensor& x = r.input(0);
  if (a.kind == reduce_prod)
    return one((grad_enabled() ? times_others : prod_gradient)(a.axes, wide(x), wide(dy)));
  return one(shared_among(equal(x, keep_axes(r, r.output(0))), a.axes, dy));
}

Saves reduce_saves(const std::any& attrs, uint32_t) {
  const ReduceKind kind = std::any_cast<const ReduceAttrs&>(attrs).kind;
  return kind == reduce_sum ? Saves{} : kind == reduce_prod ? Saves{1, 0} : Saves{1, 1};
}

constexpr Op reduce_op(const char* name) {
  return {.name = name,
          .forward = reduce_forward,
          .vjp = reduce_vjp,
          .saves = reduce_saves,
          .records_vjp = true};
}

const Op reduce_ops[] = {reduce_op("sum"), reduce_op("max"), reduce_op("min"), reduce_op("prod")};

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

// ---- var
struct VarAttrs {
  Axes axes;  // ascending
  bool keepdims;
  float divisor;
};

// x less its mean. The mean is rounded, and that of the differences takes its rounding out: it
// matters where x differs little from a large mean.
Tensor deviations(const Tensor& x, const Axes& axes) {
  Tensor d = x - mean(x, axes, true);
  Tensor rest = mean(d, axes, true);
  return std::move(d) - std::move(rest);
}

std::vector<Tensor> var_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& [axes, keepdims, divisor] = std::any_cast<const VarAttrs&>(attrs);
  Tensor squares = square(deviations(wide(inputs[0]), axes));
  return one(cast(sum(std::move(squares), axes, keepdims) / divisor, inputs[0].dtype()));
}

std::vector<Tensor> var_vjp(Record& r, std::span<Tensor> dys) {
  const auto& [axes, keepdims, divisor] = r.attributes<VarAttrs>();
  const Tensor dy =
      reshape(wide(std::exchange(dys[0], {})), reduced_shape(r.inputs[0].shape, axes, true));
  return one(deviations(wide(r.input(0)), axes) * (dy * (2 / divisor)));
}

const Op var_op = {.name = "var",
                   .forward = var_forward,
                   .vjp = var_vjp,
                   .saves = saves_always<1>,
                   .records_vjp = true};

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
         kernels::ReduceParams{.outer = count32(around.outer, "argmax"),
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
  if (x.dtype() == DType::u8) x = cast(std::move(x), DType::i32);
  return apply1(arg_ops[kind], ArgAttrs{axis, kind}, std::move(x));
}

}  // namespace

Tensor detail::shared_among(const Tensor& hits, const Axes& axes, const Tensor& dy) {
  const Tensor count = cast(sum(hits, axes, true), DType::f32);  // counted as i32
  return cast(hits, DType::f32) * (wide(dy) / count);
}

Tensor detail::times_others(const Axes& axes, const Tensor& x, const Tensor& dy) {
  Axes order;
  Shape moved;
  for (int i = 0; i < x.rank(); ++i)
    if (!std::binary_search(axes.begin(), axes.end(), i)) order.push_back(i);
  order.insert(order.end(), axes.begin(), axes.end());
  for (const int axis : order) moved.push_back(x.shape()[axis]);
  int64_t count = 1, width = 1;
  for (const int axis : axes) count *= x.shape()[axis];
  while (width < count) width *= 2;
  if (count == 0) return expand(dy, x.shape());
  const int64_t lines = x.numel() / count;
  Tensor flat = reshape(permute(x, order), {lines, count});
  std::vector<Tensor> levels = {pad(std::move(flat), {0, 0}, {0, width - count}, 1)};
  for (; width > 1; width /= 2) {
    const Tensor& all = levels.back();
    levels.push_back(slice(all, 1, 0, width, 2) * slice(all, 1, 1, width, 2));
  }
  Tensor others = expand(scalar_on(x, 1, x.dtype()), {lines, 1});
  for (size_t k = levels.size() - 1; k-- > 0; width *= 2) {
    const Tensor& all = levels[k];
    Tensor swapped = stack({slice(all, 1, 1, 2 * width, 2), slice(all, 1, 0, 2 * width, 2)}, 2);
    others = reshape(unsqueeze(others, 2) * swapped, {lines, 2 * width});
  }
  Axes inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    inverse[static_cast<size_t>(order[i])] = static_cast<int>(i);
  return dy * permute(reshape(slice(others, 1, 0, count), moved), inverse);
}

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
  check_float(x, "var");
  Axes reduced = reduced_axes(x, axes, "var");
  int64_t count = 1;
  for (int axis : reduced) count *= x.shape()[axis];
  const auto divisor = static_cast<float>(std::max<int64_t>(count - (unbiased ? 1 : 0), 0));
  return apply1(var_op, VarAttrs{std::move(reduced), keepdims, divisor}, std::move(x));
}

Tensor argmax(Tensor x, int axis) {
  return arg(0, std::move(x), axis);
}
Tensor argmin(Tensor x, int axis) {
  return arg(1, std::move(x), axis);
}

Tensor sum_to(Tensor x, const Shape& shape) {
  if (x.shape() == shape) return x;
  check<ShapeError>(broadcast(shape, x.shape(), "sum_to") == x.shape(), "sum_to",
                    "the shape must broadcast to x, got {} and {}", shape, x);
  const int lead = x.rank() - shape.rank();
  std::vector<int> axes;
  for (int i = 0; i < x.rank(); ++i)
    if (i < lead || (shape[i - lead] == 1 && x.shape()[i] != 1)) axes.push_back(i);
  const bool keeps = static_cast<int>(axes.size()) > lead;  // axes of size 1 among those of `shape`
  if (!axes.empty()) x = reduce(reduce_sum, std::move(x), std::move(axes), keeps, 1, true);
  return reshape(std::move(x), shape);
}

}  // namespace rw
