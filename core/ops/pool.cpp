// Pooling over NHWC images.
#include "rewind/core/base/checked.h"
#include "rewind/core/ops/detail.h"

namespace rw {

using namespace detail;

namespace {

struct PoolAttrs {
  Pool2dOptions options;
  Shape x, y;
};

kernels::PoolParams pool_params(const PoolAttrs& a) {
  const auto u = [](int64_t v) { return count32(v, "pool2d"); };
  const Pool2dOptions& o = a.options;
  kernels::PoolParams p = {.offset = {},
                           .batch = u(a.x[0]),
                           .in_h = u(a.x[1]),
                           .in_w = u(a.x[2]),
                           .channels = u(a.x[3]),
                           .out_h = u(a.y[1]),
                           .out_w = u(a.y[2]),
                           .kernel_h = u(o.kernel.h),
                           .kernel_w = u(o.kernel.w),
                           .count_include_pad = o.count_include_pad};
  set_window(p, o, "pool2d");
  return p;
}

std::vector<Tensor> max_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const PoolAttrs&>(attrs);
  const Tensor x = contiguous(inputs[0]);
  // The gradient reads the winner's place in its window only: a byte, where windows are no larger.
  const auto [height, width] = a.options.kernel;
  const bool is_small = int64_t{height} * width <= 255;  // 255: none
  Tensor y = empty_on(x, a.y, x.dtype());
  Tensor tap = empty_on(x, a.y, is_small ? DType::u8 : DType::i32);
  launch("max_pool2d", {in(x), out(y), out(tap)}, pool_params(a),
         {.threads = {flat_threads(y.numel()), 1, 1}});
  return {std::move(y), std::move(tap)};
}

std::vector<Tensor> max_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<PoolAttrs>();
  const Tensor dy = contiguous(std::move(dys[0]));
  Tensor dx = empty_on(dy, a.x, dy.dtype());
  launch("max_pool2d_grad", {in(dy), in(r.output(1)), out(dx)}, pool_params(a),
         {.threads = {flat_threads(dx.numel()), 1, 1}});
  return one(std::move(dx));
}

const Op max_op = {"max_pool2d", max_forward, max_vjp, [](const std::any&, uint32_t) {
                     return Saves{0, 2};
                   }};

std::vector<Tensor> avg_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const PoolAttrs&>(attrs);
  const Tensor x = contiguous(inputs[0]);
  Tensor y = empty_on(x, a.y, x.dtype());
  launch("avg_pool2d", {in(x), out(y)}, pool_params(a),
         {.threads = {flat_threads(y.numel()), 1, 1}});
  return one(std::move(y));
}

std::vector<Tensor> avg_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<PoolAttrs>();
  const Tensor dy = contiguous(std::move(dys[0]));
  Tensor dx = empty_on(dy, a.x, dy.dtype());
  launch("avg_pool2d_grad", {in(dy), out(dx)}, pool_params(a),
         {.threads = {flat_threads(dx.numel()), 1, 1}});
  return one(std::move(dx));
}

const Op avg_op = {"avg_pool2d", avg_forward, avg_vjp};

PoolAttrs attributes(const Tensor& x, const Pool2dOptions& o, const char* op) {
  check_float(x, op);
  check<ShapeError>(x.rank() == 4, op, "needs x [N, H, W, C], got {}", x);
  check(o.kernel.h > 0 && o.kernel.w > 0 && o.stride.h > 0 && o.stride.w > 0 && o.dilation.h > 0 &&
            o.dilation.w > 0,
        op, "kernel, stride and dilation must be positive");
  check(o.padding.h >= 0 && o.padding.w >= 0 && o.padding.h <= o.kernel.h / 2 &&
            o.padding.w <= o.kernel.w / 2,
        op, "padding must be at most half the kernel, got {}x{} for a {}x{} kernel", o.padding.h,
        o.padding.w, o.kernel.h, o.kernel.w);
  const int64_t h = window_places(op, x, 1, o.kernel.h, o.stride.h, o.padding.h, o.dilation.h);
  const int64_t w = window_places(op, x, 2, o.kernel.w, o.stride.w, o.padding.w, o.dilation.w);
  return {o, x.shape(), {x.shape()[0], h, w, x.shape()[3]}};
}

}  // namespace

int64_t detail::window_places(const char* op, const Tensor& x, int axis, int64_t kernel,
                              int64_t stride, int64_t pad, int64_t dilation) {
  const auto padded = checked_add(checked_mul(std::optional(pad), 2), x.shape()[axis]);
  const auto reach = checked_mul(std::optional(kernel - 1), dilation);
  check<ShapeError>(
      kernel > 0 && padded && reach && *reach < *padded, op,
      "the window must fit into the padded image, got {} elements at steps of {} along axis {} "
      "of {} with padding {}",
      kernel, dilation, axis, x, pad);
  return (*padded - *reach - 1) / stride + 1;
}

Tensor max_pool2d(Tensor x, const Pool2dOptions& options) {
  const PoolAttrs attrs = attributes(x, options, "max_pool2d");
  return apply1(max_op, attrs, one(std::move(x)));
}

Tensor avg_pool2d(Tensor x, const Pool2dOptions& options) {
  check(options.dilation.h == 1 && options.dilation.w == 1, "avg_pool2d", "dilation must be 1");
  const PoolAttrs attrs = attributes(x, options, "avg_pool2d");
  return apply1(avg_op, attrs, one(std::move(x)));
}

}  // namespace rw
