#include "ops/layout/unbind.h"

#include <algorithm>

#include "core/autograd/gradient_op.h"
#include "ops/detail.h"

namespace rw {

using namespace detail;

namespace {

// x at `index` of an axis, without that axis.
Tensor part_of(const Tensor& x, int axis, int64_t index) {
  Shape shape;
  Strides strides;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == axis) continue;
    shape.push_back(x.shape()[i]);
    strides.push_back(x.strides()[i]);
  }
  const int64_t start = shape.numel() == 0 ? 0 : index * x.strides()[axis];
  return make_view(x, shape, strides, x.impl().offset + start);
}

std::vector<Tensor> unbind_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const int axis = std::any_cast<int>(attrs);
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < inputs[0].shape()[axis]; ++i)
    parts.push_back(part_of(inputs[0], axis, i));
  return parts;
}

// The gradient of x, of which part_at(t, i) is the view of t's part i.
template <class F>
std::vector<Tensor> joined(Record& r, std::span<Tensor> dys, const F& part_at) {
  const auto is_wide = [](const Tensor& dy) { return dy && dy.dtype() == DType::f32; };
  const bool wide = std::any_of(dys.begin(), dys.end(), is_wide);
  const Tensor some =
      *std::find_if(dys.begin(), dys.end(), [](const Tensor& dy) { return dy.defined(); });
  Tensor dx = empty_on(some, r.inputs[0].shape, wide ? DType::f32 : some.dtype());
  for (size_t i = 0; i < dys.size(); ++i) {
    const Tensor part = part_at(dx, static_cast<int64_t>(i)), dy = std::exchange(dys[i], {});
    copy_into(dy ? dy : expand(scalar_on(dx, 0, dx.dtype()), part.shape()), part);
  }
  return one(std::move(dx));
}

std::vector<Tensor> unbind_vjp(Record& r, std::span<Tensor> dys) {
  const int axis = r.attributes<int>();
  return joined(r, dys, [axis](const Tensor& t, int64_t i) { return part_of(t, axis, i); });
}

const Op unbind_op = {.name = "unbind",
                      .forward = unbind_forward,
                      .vjp = unbind_vjp,
                      .any_grad_dtype = true,
                      .is_view = true,
                      .second = linear_second};

struct SplitAttrs {
  int axis;
  int64_t size;
};

// Part i of t.
Tensor piece_of(const Tensor& t, const SplitAttrs& a, int64_t i) {
  const int64_t begin = i * a.size;
  return slice(t, a.axis, begin, std::min(begin + a.size, t.shape()[a.axis]));
}

std::vector<Tensor> split_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const SplitAttrs&>(attrs);
  std::vector<Tensor> parts;
  for (int64_t i = 0; i * a.size < inputs[0].shape()[a.axis]; ++i)
    parts.push_back(piece_of(inputs[0], a, i));
  return parts;
}

std::vector<Tensor> split_vjp(Record& r, std::span<Tensor> dys) {
  const auto a = r.attributes<SplitAttrs>();
  return joined(r, dys, [&](const Tensor& t, int64_t i) { return piece_of(t, a, i); });
}

const Op split_op = {.name = "split",
                     .forward = split_forward,
                     .vjp = split_vjp,
                     .any_grad_dtype = true,
                     .is_view = true,
                     .second = linear_second};

}  // namespace

std::vector<Tensor> unbind(Tensor x, int axis) {
  axis = normalize_axis(axis, x.rank(), "unbind");
  check<ShapeError>(x.shape()[axis] > 0, "unbind", "axis {} must not be empty, got {}", axis, x);
  return apply(unbind_op, axis, TensorList(std::move(x)));
}

std::vector<Tensor> split(Tensor x, int64_t size, int axis) {
  check<ShapeError>(size > 0, "split", "the size must be positive, got {}", size);
  axis = normalize_axis(axis, x.rank(), "split");
  if (x.shape()[axis] == 0) return {slice(std::move(x), axis, 0, 0)};
  return apply(split_op, SplitAttrs{axis, size}, TensorList(std::move(x)));
}

}  // namespace rw
