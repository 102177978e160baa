// Pooling over NHWC images, and over sequences as images of one line.
#include "ops/network/pool.h"

#include <algorithm>

#include "core/autograd/gradient_op.h"
#include "core/base/checked.h"
#include "ops/detail.h"
#include "ops/layout/indexing.h"
#include "ops/network/vision.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

struct PoolAttrs {
  Pool2dOptions options;
  bool adaptive;  // windows follow from the sizes; options.kernel is at least the largest
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

// Queues a pooling kernel with a thread for 8 elements of `result`.
void run_pool(const char* kernel, const PoolAttrs& a, std::initializer_list<Arg> args,
              const Tensor& result) {
  launch(kernel, args, pool_params(a),
         {.threads = {flat_threads(result.numel()), 1, 1}, .variant = {a.adaptive}});
}

std::vector<Tensor> max_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const PoolAttrs&>(attrs);
  const Tensor x = contiguous(inputs[0]);
  // The gradient reads only the winner's place in its window: a byte, if windows are small enough.
  const auto [height, width] = a.options.kernel;
  const bool is_small = int64_t{height} * width <= 255;  // 255: none
  Tensor y = empty_on(x, a.y, x.dtype());
  Tensor tap = empty_on(x, a.y, is_small ? DType::u8 : DType::i32);
  run_pool("max_pool2d", a, {in(x), out(y), out(tap)}, y);
  return {std::move(y), std::move(tap)};
}

std::vector<Tensor> max_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<PoolAttrs>();
  const Tensor dy = contiguous(std::move(dys[0]));
  Tensor dx = empty_on(dy, a.x, dy.dtype());
  run_pool("max_pool2d_grad", a, {in(dy), in(r.output(1)), out(dx)}, dx);
  return one(std::move(dx));
}

// The places where windows begin along an axis, i32 [outputs], which may be in the padding.
Tensor window_begins(const PoolAttrs& a, int axis, int stride, int pad) {
  std::vector<int32_t> begins;
  for (int64_t i = 0; i < a.y[axis]; ++i)
    begins.push_back(
        static_cast<int32_t>(a.adaptive ? i * a.x[axis] / a.y[axis] : i * stride - pad));
  return tensor(std::span<const int32_t>(begins), {a.y[axis]});
}

// The gradient of each window's dy is what came for its winner.
void max_second(SecondOrder& s) {
  const auto& a = s.attributes<PoolAttrs>();
  const Pool2dOptions& o = a.options;
  const DeviceScope device(s.g().device().shared_from_this());
  const Tensor none = s.output(1) == (s.output(1).dtype() == DType::u8 ? 255 : -1);
  const Tensor tap = masked_fill(cast(s.output(1), DType::i32), none, 0), row = tap / o.kernel.w,
               column = tap - row * o.kernel.w;
  const Tensor h =
      reshape(window_begins(a, 1, o.stride.h, o.padding.h), {a.y[1], 1, 1}) + row * o.dilation.h;
  const Tensor w =
      reshape(window_begins(a, 2, o.stride.w, o.padding.w), {a.y[2], 1}) + column * o.dilation.w;
  const Tensor place = masked_fill(h * a.x[2] + w, none, 0);
  const Shape images = {a.x[0], a.x[1] * a.x[2], a.x[3]},
              windows = {a.y[0], a.y[1] * a.y[2], a.y[3]};
  const Tensor won = gather(reshape(s.g(), images), 1, reshape(expand(place, a.y), windows));
  s.give_dy(masked_fill(reshape(won, a.y), none, 0));
}

const Op max_op = {.name = "max_pool2d",
                   .forward = max_forward,
                   .vjp = max_vjp,
                   .saves = saves_always<0, 2>,
                   .second = max_second};

std::vector<Tensor> avg_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const PoolAttrs&>(attrs);
  const Tensor x = contiguous(inputs[0]);
  Tensor y = empty_on(x, a.y, x.dtype());
  run_pool("avg_pool2d", a, {in(x), out(y)}, y);
  return one(std::move(y));
}

std::vector<Tensor> avg_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<PoolAttrs>();
  const Tensor dy = contiguous(std::move(dys[0]));
  Tensor dx = empty_on(dy, a.x, dy.dtype());
  run_pool("avg_pool2d_grad", a, {in(dy), out(dx)}, dx);
  return one(std::move(dx));
}

const Op avg_op = {
    .name = "avg_pool2d", .forward = avg_forward, .vjp = avg_vjp, .second = linear_second};

// The elements of a window that one thread looks at: it may have 8 windows, and 65535 rounds in
// all.
constexpr int64_t most_in_window = 8191;

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
  check(o.kernel.h <= most_in_window && o.kernel.w <= most_in_window, op,
        "the kernel must have at most {} elements along an axis, got {}x{}", most_in_window,
        o.kernel.h, o.kernel.w);
  return {o, false, x.shape(), {x.shape()[0], h, w, x.shape()[3]}};
}

// The largest window of adaptive pooling along one axis, or one more.
int adaptive_kernel(const char* op, const Tensor& x, int axis, int64_t places) {
  const int64_t size = x.shape()[axis];
  check<ShapeError>(size > 0 && places > 0, op,
                    "sizes must be positive, got {} places along axis {} of {}", places, axis, x);
  check<ShapeError>(size <= (int64_t{1} << 31) / places, op,
                    "axis {} of {} and the {} places must have a product below 2^31", axis, x,
                    places);
  const int64_t kernel = size % places == 0 ? size / places : std::min(size, size / places + 2);
  check<ShapeError>(kernel <= most_in_window, op,
                    "a window must have at most {} elements along an axis, got {} places along "
                    "axis {} of {}",
                    most_in_window, places, axis, x);
  return static_cast<int>(kernel);
}

PoolAttrs adaptive_attributes(const Tensor& x, Size2d size, const char* op) {
  check_float(x, op);
  check<ShapeError>(x.rank() == 4, op, "needs x [N, H, W, C], got {}", x);
  const Size2d kernel = {adaptive_kernel(op, x, 1, size.h), adaptive_kernel(op, x, 2, size.w)};
  return {{kernel, 1}, true, x.shape(), {x.shape()[0], size.h, size.w, x.shape()[3]}};
}

// Uses one kernel, or for large windows one along each line and one across them, which find the
// same first maximum and mean.
Tensor pool(const Op& op, PoolAttrs a, Tensor x) {
  const Size2d kernel = a.options.kernel;
  if (int64_t{kernel.h} * kernel.w <= most_in_window) return apply1(op, std::move(a), std::move(x));
  PoolAttrs along = a;
  along.y[1] = a.x[1];
  along.options.kernel.h = along.options.stride.h = along.options.dilation.h = 1;
  along.options.padding.h = 0;
  a.x = along.y;
  a.options.kernel.w = a.options.stride.w = a.options.dilation.w = 1;
  a.options.padding.w = 0;
  const DType dtype = x.dtype();
  Tensor lines = apply1(op, std::move(along), wide(std::move(x)));
  return cast(apply1(op, std::move(a), std::move(lines)), dtype);
}

Pool2dOptions of_line(const Pool1dOptions& o) {
  return {{1, o.kernel}, {1, o.stride}, {0, o.padding}, {1, o.dilation}, o.count_include_pad};
}

// Applies f to x [N, L, C] as an image of one line.
template <class F>
Tensor on_line(const char* op, Tensor x, const F& f) {
  check<ShapeError>(x.rank() == 3, op, "needs x [N, L, C], got {}", x);
  return squeeze(f(unsqueeze(std::move(x), 1)), 1);
}

Tensor max_pool(const char* op, Tensor x, const Pool2dOptions& options) {
  PoolAttrs attrs = attributes(x, options, op);
  return pool(max_op, std::move(attrs), std::move(x));
}

Tensor avg_pool(const char* op, Tensor x, const Pool2dOptions& options) {
  check(options.dilation.h == 1 && options.dilation.w == 1, op, "dilation must be 1");
  PoolAttrs attrs = attributes(x, options, op);
  return pool(avg_op, std::move(attrs), std::move(x));
}

Tensor adaptive_max_pool(const char* op, Tensor x, Size2d size) {
  PoolAttrs attrs = adaptive_attributes(x, size, op);
  return pool(max_op, std::move(attrs), std::move(x));
}

Tensor adaptive_avg_pool(const char* op, Tensor x, Size2d size) {
  check_float(x, op);
  if (size == Size2d(1) && x.rank() == 4 && x.numel() > 0) return mean(std::move(x), {1, 2}, true);
  PoolAttrs attrs = adaptive_attributes(x, size, op);
  return pool(avg_op, std::move(attrs), std::move(x));
}

}  // namespace

int64_t detail::window_places(const char* op, const Tensor& x, int axis, int64_t kernel,
                              int64_t stride, int64_t pad, int64_t dilation,
                              std::optional<int64_t> pad_end) {
  const auto padded =
      checked_add(checked_add(std::optional(pad), pad_end.value_or(pad)), x.shape()[axis]);
  const auto reach = checked_mul(std::optional(kernel - 1), dilation);
  check<ShapeError>(
      kernel > 0 && padded && reach && *reach < *padded, op,
      "the window must fit into the padded image, got {} elements at steps of {} along axis {} "
      "of {} with padding {}",
      kernel, dilation, axis, x, pad);
  return (*padded - *reach - 1) / stride + 1;
}

Tensor max_pool2d(Tensor x, const Pool2dOptions& options) {
  return max_pool("max_pool2d", std::move(x), options);
}

Tensor avg_pool2d(Tensor x, const Pool2dOptions& options) {
  return avg_pool("avg_pool2d", std::move(x), options);
}

Tensor adaptive_max_pool2d(Tensor x, Size2d size) {
  return adaptive_max_pool("adaptive_max_pool2d", std::move(x), size);
}

Tensor adaptive_avg_pool2d(Tensor x, Size2d size) {
  return adaptive_avg_pool("adaptive_avg_pool2d", std::move(x), size);
}

Tensor max_pool1d(Tensor x, const Pool1dOptions& o) {
  return on_line("max_pool1d", std::move(x),
                 [&](Tensor line) { return max_pool("max_pool1d", std::move(line), of_line(o)); });
}

Tensor avg_pool1d(Tensor x, const Pool1dOptions& o) {
  return on_line("avg_pool1d", std::move(x),
                 [&](Tensor line) { return avg_pool("avg_pool1d", std::move(line), of_line(o)); });
}

Tensor adaptive_max_pool1d(Tensor x, int size) {
  return on_line("adaptive_max_pool1d", std::move(x), [&](Tensor line) {
    return adaptive_max_pool("adaptive_max_pool1d", std::move(line), {1, size});
  });
}

Tensor adaptive_avg_pool1d(Tensor x, int size) {
  return on_line("adaptive_avg_pool1d", std::move(x), [&](Tensor line) {
    return adaptive_avg_pool("adaptive_avg_pool1d", std::move(line), {1, size});
  });
}

}  // namespace rw
