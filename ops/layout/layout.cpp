// Making, casting, copying and viewing.
#include <fmt/format.h>

#include <bit>
#include <limits>
#include <numeric>

#include "core/autograd/gradient_op.h"
#include "core/base/checked.h"
#include "ops/detail.h"
#include "ops/layout/indexing.h"

namespace rw {

using namespace detail;

namespace {

// ---- contiguous: a copy ------------------------------------------------------------------------
std::vector<Tensor> contiguous_forward(const std::any&, std::span<Tensor> inputs) {
  return one(copy_of(inputs[0], inputs[0].dtype()));
}

std::vector<Tensor> pass_on(Record&, std::span<Tensor> dy) {
  return one(std::exchange(dy[0], {}));
}

const Op contiguous_op = {.name = "contiguous",
                          .forward = contiguous_forward,
                          .vjp = pass_on,
                          .any_grad_dtype = true,
                          .records_vjp = true};

// ---- views -------------------------------------------------------------------------------------
std::vector<Tensor> name_forward(const std::any&, std::span<Tensor> inputs) {
  return one(make_view(inputs[0], inputs[0].shape(), inputs[0].strides(), inputs[0].impl().offset));
}

const Op name_op = {
    .name = "checkpoint_name",
    .forward = name_forward,
    .vjp = pass_on,
    .any_grad_dtype = true,
    .is_view = true,
    .label = [](const std::any& attrs) { return std::any_cast<const std::string&>(attrs).c_str(); },
    .records_vjp = true};

const Op keep_op = {.name = "checkpoint_keep",
                    .forward = name_forward,
                    .vjp = pass_on,
                    .any_grad_dtype = true,
                    .is_view = true,
                    .is_kept = true,
                    .records_vjp = true};

std::vector<Tensor> reshape_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& shape = std::any_cast<const Shape&>(attrs);
  const Tensor& x = inputs[0];
  const auto strides = reshape_strides(x.shape(), x.strides(), shape);
  return one(make_view(x, shape, strides.value(), x.impl().offset));
}

std::vector<Tensor> reshape_vjp(Record& r, std::span<Tensor> dy) {
  return one(reshape(std::move(dy[0]), r.inputs[0].shape));
}

const Op reshape_op = {.name = "reshape",
                       .forward = reshape_forward,
                       .vjp = reshape_vjp,
                       .any_grad_dtype = true,
                       .is_view = true,
                       .records_vjp = true};

std::vector<Tensor> permute_forward(const std::any& attrs, std::span<Tensor> inputs) {
  Shape shape;
  Strides strides;
  for (int axis : std::any_cast<const Axes&>(attrs)) {
    shape.push_back(inputs[0].shape()[axis]);
    strides.push_back(inputs[0].strides()[axis]);
  }
  return one(make_view(inputs[0], shape, strides, inputs[0].impl().offset));
}

std::vector<Tensor> permute_vjp(Record& r, std::span<Tensor> dy) {
  const Axes& axes = r.attributes<Axes>();
  Axes inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i)
    inverse[static_cast<size_t>(axes[i])] = static_cast<int>(i);
  return one(permute(std::move(dy[0]), inverse));
}

const Op permute_op = {.name = "permute",
                       .forward = permute_forward,
                       .vjp = permute_vjp,
                       .any_grad_dtype = true,
                       .is_view = true,
                       .records_vjp = true};

struct SliceAttrs {
  int axis;
  int64_t begin, end, step;
};

std::vector<Tensor> slice_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const SliceAttrs&>(attrs);
  const Tensor& x = inputs[0];
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape[a.axis] = (a.end - a.begin + a.step - 1) / a.step;
  strides[a.axis] *= a.step;
  const int64_t start = shape.numel() == 0 ? 0 : a.begin * x.strides()[a.axis];
  return one(make_view(x, shape, strides, x.impl().offset + start));
}

std::vector<Tensor> slice_vjp(Record& r, std::span<Tensor> dy) {
  const auto& a = r.attributes<SliceAttrs>();
  Tensor dx = full(r.inputs[0].shape, 0, dy[0].dtype(), dy[0].device().shared_from_this());
  copy_into(dy[0], slice(dx, a.axis, a.begin, a.end, a.step));
  return one(std::move(dx));
}

const Op slice_op = {.name = "slice",
                     .forward = slice_forward,
                     .vjp = slice_vjp,
                     .any_grad_dtype = true,
                     .is_view = true,
                     .second = linear_second};

std::vector<Tensor> expand_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& shape = std::any_cast<const Shape&>(attrs);
  const Tensor& x = inputs[0];
  return one(
      make_view(x, shape, broadcast_strides(x.shape(), x.strides(), shape), x.impl().offset));
}

std::vector<Tensor> expand_vjp(Record& r, std::span<Tensor> dy) {
  return one(sum_to(std::move(dy[0]), r.inputs[0].shape));
}

const Op expand_op = {.name = "expand",
                      .forward = expand_forward,
                      .vjp = expand_vjp,
                      .any_grad_dtype = true,
                      .is_view = true,
                      .records_vjp = true};

// ---- concat and pad: copies into views of one new tensor
// -----------------------------------------
std::vector<Tensor> concat_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const int axis = std::any_cast<int>(attrs);
  Shape shape = inputs[0].shape();
  for (size_t i = 1; i < inputs.size(); ++i) shape[axis] += inputs[i].shape()[axis];
  Tensor y = empty_on(inputs[0], shape, inputs[0].dtype());
  int64_t at = 0;
  for (const Tensor& part : inputs) {
    copy_into(part, slice(y, axis, at, at + part.shape()[axis]));
    at += part.shape()[axis];
  }
  return one(std::move(y));
}

std::vector<Tensor> concat_vjp(Record& r, std::span<Tensor> dy) {
  const int axis = r.attributes<int>();
  std::vector<Tensor> parts;
  int64_t at = 0;
  for (const Edge& input : r.inputs) {
    parts.push_back(slice(dy[0], axis, at, at + input.shape[axis]));
    at += input.shape[axis];
  }
  return parts;
}

const Op concat_op = {.name = "concat",
                      .forward = concat_forward,
                      .vjp = concat_vjp,
                      .any_grad_dtype = true,
                      .records_vjp = true};

struct PadAttrs {
  std::vector<int64_t> before, after;
  float value;
};

Tensor inner_view(Tensor t, const Shape& inner, const std::vector<int64_t>& before) {
  for (int i = 0; i < inner.rank(); ++i) {
    const int64_t begin = before[static_cast<size_t>(i)];
    t = slice(std::move(t), i, begin, begin + inner[i]);
  }
  return t;
}

std::vector<Tensor> pad_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const PadAttrs&>(attrs);
  const Tensor& x = inputs[0];
  Shape shape = x.shape();
  for (int i = 0; i < x.rank(); ++i)
    shape[i] += a.before[static_cast<size_t>(i)] + a.after[static_cast<size_t>(i)];
  Tensor y = full(shape, a.value, x.dtype(), x.device().shared_from_this());
  copy_into(x, inner_view(y, x.shape(), a.before));
  return one(std::move(y));
}

std::vector<Tensor> pad_vjp(Record& r, std::span<Tensor> dy) {
  return one(inner_view(std::move(dy[0]), r.inputs[0].shape, r.attributes<PadAttrs>().before));
}

const Op pad_op = {.name = "pad",
                   .forward = pad_forward,
                   .vjp = pad_vjp,
                   .any_grad_dtype = true,
                   .records_vjp = true};

}  // namespace

Tensor zeros(const Shape& shape, DType dtype) {
  check_sizes("zeros", shape, size_of(dtype));
  return full(shape, 0, dtype);
}

Tensor ones(const Shape& shape, DType dtype) {
  check_sizes("ones", shape, size_of(dtype));
  return full(shape, 1, dtype);
}

Tensor zeros_like(const Tensor& t) {
  return full(t.shape(), 0, t.dtype(), t.device().shared_from_this());
}

Tensor arange(int64_t n) {
  constexpr int64_t most = int64_t{std::numeric_limits<int32_t>::max()} + 1;
  check<ShapeError>(n >= 0 && n <= most, "arange",
                    "the size must be 0 to {}, as values are i32, got ({})", most, n);
  return arange(0, n, 1);
}

Tensor cast(Tensor x, DType dtype) {
  return recorded_cast(std::move(x), dtype);
}

Tensor contiguous(Tensor x) {
  if (x.is_contiguous()) return x;
  return apply1(contiguous_op, {}, std::move(x));
}

Tensor Tensor::operator[](int64_t index) const {
  return select(*this, 0, index);
}

Tensor checkpoint_name(Tensor x, std::string name) {
  return apply1(name_op, std::move(name), std::move(x));
}

Tensor checkpoint_keep(Tensor x) {
  return apply1(keep_op, {}, std::move(x));
}

Tensor reshape(Tensor x, const Shape& shape) {
  if (shape == x.shape()) return x;
  check_sizes("reshape", shape, size_of(x.dtype()));
  check<ShapeError>(shape.numel() == x.numel(), "reshape",
                    "the number of elements must stay the same, got {} and {}", x, shape);
  if (!reshape_strides(x.shape(), x.strides(), shape)) x = contiguous(std::move(x));
  return apply1(reshape_op, shape, std::move(x));
}

Tensor reshape(Tensor x, std::initializer_list<int64_t> sizes) {
  Shape others;  // all but the one that is -1
  int unknown = 0;
  for (int64_t s : sizes) {
    check<ShapeError>(s >= -1, "reshape",
                      "sizes must not be negative, except one that is -1, got ({})",
                      fmt::join(sizes, ", "));
    if (s == -1)
      ++unknown;
    else
      others.push_back(s);
  }
  check_sizes("reshape", others, size_of(x.dtype()));
  const int64_t known = others.numel();
  check<ShapeError>(unknown <= 1, "reshape", "at most one size may be -1, got ({})",
                    fmt::join(sizes, ", "));
  check<ShapeError>(unknown == 0 || (known > 0 && x.numel() % known == 0), "reshape",
                    "the sizes must divide the number of elements, got {} to ({})", x,
                    fmt::join(sizes, ", "));
  Shape shape;
  for (int64_t s : sizes) shape.push_back(s == -1 ? x.numel() / known : s);
  return reshape(std::move(x), shape);
}

Tensor flatten(Tensor x, int first, int last) {
  first = normalize_axis(first, x.rank(), "flatten");
  last = normalize_axis(last, x.rank(), "flatten");
  check<ShapeError>(first <= last, "flatten", "first must not be after last, got {} and {}", first,
                    last);
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i > first && i <= last)
      shape[first] *= x.shape()[i];
    else
      shape.push_back(x.shape()[i]);
  }
  return reshape(std::move(x), shape);
}

Tensor permute(Tensor x, const Axes& axes) {
  Axes order;
  for (int axis : axes) order.push_back(normalize_axis(axis, x.rank(), "permute"));
  check<ShapeError>(static_cast<int>(normalize_axes(axes, x.rank(), "permute").size()) == x.rank(),
                    "permute", "needs each axis once, got ({}) for {}", fmt::join(axes, ", "), x);
  return apply1(permute_op, std::move(order), std::move(x));
}

Tensor transpose(Tensor x, int a, int b) {
  Axes axes(static_cast<size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[static_cast<size_t>(normalize_axis(a, x.rank(), "transpose"))],
            axes[static_cast<size_t>(normalize_axis(b, x.rank(), "transpose"))]);
  return permute(std::move(x), axes);
}

Tensor slice(Tensor x, int axis, int64_t begin, int64_t end, int64_t step) {
  axis = normalize_axis(axis, x.rank(), "slice");
  const int64_t size = x.shape()[axis];
  if (begin < 0) begin += size;
  if (end < 0) end += size;
  check<ShapeError>(0 <= begin && begin <= end && end <= size && step > 0, "slice",
                    "needs 0 <= begin <= end <= {} and step > 0, got begin {} end {} step {}", size,
                    begin, end, step);
  step = std::min(step, std::max<int64_t>(end - begin, 1));  // the same elements
  return apply1(slice_op, SliceAttrs{axis, begin, end, step}, std::move(x));
}

Tensor select(Tensor x, int axis, int64_t index) {
  axis = normalize_axis(axis, x.rank(), "select");
  const int64_t size = x.shape()[axis];
  check<ShapeError>(-size <= index && index < size, "select",
                    "the index must be in [{}, {}), got {} for axis {} of {}", -size, size, index,
                    axis, x);
  if (index < 0) index += size;
  return squeeze(slice(std::move(x), axis, index, index + 1), axis);
}

Tensor expand(Tensor x, const Shape& shape) {
  check<ShapeError>(broadcast(x.shape(), shape, "expand") == shape, "expand",
                    "the shape must broadcast to {}, got {}", shape, x);
  return apply1(expand_op, shape, std::move(x));
}

Tensor squeeze(Tensor x, int axis) {
  axis = normalize_axis(axis, x.rank(), "squeeze");
  check<ShapeError>(x.shape()[axis] == 1, "squeeze", "axis {} must have size 1, got {}", axis, x);
  Shape shape;
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) shape.push_back(x.shape()[i]);
  return reshape(std::move(x), shape);
}

Tensor unsqueeze(Tensor x, int axis) {
  axis = normalize_axis(axis, x.rank() + 1, "unsqueeze");
  Shape shape;
  for (int i = 0; i <= x.rank(); ++i) {
    if (i == axis) shape.push_back(1);
    if (i < x.rank()) shape.push_back(x.shape()[i]);
  }
  return reshape(std::move(x), shape);
}

Tensor concat(TensorList parts, int axis) {
  const AutocastInputs autocast("concat", parts);
  check<ShapeError>(!parts.empty(), "concat", "needs at least one tensor, got none");
  axis = normalize_axis(axis, parts[0].rank(), "concat");
  std::optional<int64_t> size = 0;
  for (const Tensor& part : parts) {
    Shape rest = part.shape();
    const bool same_rank = rest.rank() == parts[0].rank();
    if (same_rank) rest[axis] = parts[0].shape()[axis];
    check<ShapeError>(same_rank && rest == parts[0].shape() && part.dtype() == parts[0].dtype(),
                      "concat", "all must agree except along axis {}, got {} and {}", axis,
                      parts[0], part);
    size = checked_add(size, part.shape()[axis]);
    check<ShapeError>(size.has_value(), "concat",
                      "the parts are too long together along axis {}, got {} and {}", axis,
                      parts[0], part);
  }
  return apply1(concat_op, axis, std::move(parts));
}

Tensor stack(TensorList parts, int axis) {
  for (Tensor& part : parts) part = unsqueeze(std::move(part), axis);
  return concat(std::move(parts), axis);
}

Tensor pad(Tensor x, const std::vector<int64_t>& before, const std::vector<int64_t>& after,
           float value) {
  const auto rank = static_cast<size_t>(x.rank());
  const auto valid = [&](const std::vector<int64_t>& sizes) {
    return sizes.size() == rank &&
           std::all_of(sizes.begin(), sizes.end(), [](int64_t s) { return s >= 0; });
  };
  check<ShapeError>(valid(before) && valid(after), "pad",
                    "needs one non-negative size per axis of {}, got ({}) and ({})", x,
                    fmt::join(before, ", "), fmt::join(after, ", "));
  for (size_t i = 0; i < rank; ++i)
    check<ShapeError>(
        checked_add(checked_add(x.shape()[static_cast<int>(i)], before[i]), after[i]).has_value(),
        "pad", "the padded size must fit 63 bits, got {} with ({}) and ({})", x,
        fmt::join(before, ", "), fmt::join(after, ", "));
  return apply1(pad_op, PadAttrs{before, after, value}, std::move(x));
}

}  // namespace rw
