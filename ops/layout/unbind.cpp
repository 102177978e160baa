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

std::vector<Tensor> unbind_vjp(Record& r, std::span<Tensor> dys) {
  const int axis = r.attributes<int>();
  const auto is_wide = [](const Tensor& dy) { return dy && dy.dtype() == DType::f32; };
  const bool wide = std::any_of(dys.begin(), dys.end(), is_wide);
  const Tensor some =
      *std::find_if(dys.begin(), dys.end(), [](const Tensor& dy) { return dy.defined(); });
  Tensor dx = empty_on(some, r.inputs[0].shape, wide ? DType::f32 : some.dtype());
  for (size_t i = 0; i < dys.size(); ++i) {
    const Tensor part = part_of(dx, axis, static_cast<int64_t>(i)), dy = std::exchange(dys[i], {});
    copy_into(dy ? dy : expand(scalar_on(dx, 0, dx.dtype()), part.shape()), part);
  }
  return one(std::move(dx));
}

const Op unbind_op = {.name = "unbind",
                      .forward = unbind_forward,
                      .vjp = unbind_vjp,
                      .any_grad_dtype = true,
                      .is_view = true,
                      .second = linear_second};

}  // namespace

std::vector<Tensor> unbind(Tensor x, int axis) {
  axis = normalize_axis(axis, x.rank(), "unbind");
  check<ShapeError>(x.shape()[axis] > 0, "unbind", "axis {} must not be empty, got {}", axis, x);
  return apply(unbind_op, axis, TensorList(std::move(x)));
}

}  // namespace rw
