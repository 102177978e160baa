// Convolutions by the kernels of conv2d: forward, its gradient as a layer, and sequences as images
// of one line.
#include "ops/network/conv.h"

#include "core/autograd/gradient_op.h"
#include "core/base/checked.h"
#include "ops/matmul.h"
#include "ops/network/conv_kernels.h"
#include "ops/network/pool.h"
#include "ops/network/vision.h"

namespace rw {

using namespace detail;

namespace {

kernels::Conv2dParams conv_params(const ConvAttrs& a) {
  const auto u = [](int64_t v) { return count32(v, "conv2d"); };
  kernels::Conv2dParams p = {.offset = {},
                             .batch = u(a.x[0]),
                             .in_h = u(a.x[1]),
                             .in_w = u(a.x[2]),
                             .in_c = u(a.x[3]),
                             .out_h = u(a.y[1]),
                             .out_w = u(a.y[2]),
                             .out_c = u(a.y[3]),
                             .kernel_h = u(a.w[1]),
                             .kernel_w = u(a.w[2]),
                             .groups = u(a.groups)};
  set_window(p, a, "conv2d");
  return p;
}

Tensor run_conv(const char* kernel, const ConvAttrs& attrs, const Tensor& a, const Tensor& b,
                const Shape& shape, DType dtype) {
  Tensor result = empty_on(a, shape, dtype);
  conv_into(kernel, attrs, a, b, result);
  return result;
}

std::vector<Tensor> conv_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const ConvAttrs&>(attrs);
  return one(
      run_conv("conv2d", a, contiguous(inputs[0]), contiguous(inputs[1]), a.y, inputs[0].dtype()));
}

std::vector<Tensor> conv_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<ConvAttrs>();
  const Tensor dy = contiguous(std::move(dys[0]));
  Tensor dx, dw;
  if (r.needs_grad(1))
    dw = run_conv("conv2d_wgrad", a, contiguous(r.take_input(0)), dy, a.w, DType::f32);
  if (r.needs_grad(0))
    dx = run_conv("conv2d_dgrad", a, dy, contiguous(r.input(1)), a.x, dy.dtype());
  return {std::move(dx), std::move(dw)};
}

const Op conv_op = {.name = "conv2d",
                    .forward = conv_forward,
                    .vjp = conv_vjp,
                    .saves = product_saves,
                    .is_heavy = true,
                    .saves_8_bits = true,
                    .second = bilinear_second};

// ---- the same from y to x -----------------------------------------------------------------------
std::vector<Tensor> transposed_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const ConvAttrs&>(attrs);
  return one(run_conv("conv2d_dgrad", a, contiguous(inputs[0]), contiguous(inputs[1]), a.x,
                      inputs[0].dtype()));
}

std::vector<Tensor> transposed_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<ConvAttrs>();
  const Tensor dy = contiguous(std::move(dys[0]));
  Tensor dx, dw;
  if (r.needs_grad(1))
    dw = run_conv("conv2d_wgrad", a, dy, contiguous(r.take_input(0)), a.w, DType::f32);
  if (r.needs_grad(0)) dx = run_conv("conv2d", a, dy, contiguous(r.input(1)), a.y, dy.dtype());
  return {std::move(dx), std::move(dw)};
}

const Op transposed_op = {.name = "conv_transpose2d",
                          .forward = transposed_forward,
                          .vjp = transposed_vjp,
                          .saves = product_saves,
                          .is_heavy = true,
                          .saves_8_bits = true,
                          .second = bilinear_second};

// The size of a transposed convolution's result along one axis.
int64_t transposed_size(const char* op, const Tensor& x, int axis, int64_t kernel, int64_t stride,
                        int64_t pad, int64_t output_pad, int64_t dilation) {
  check<ShapeError>(kernel > 0 && x.shape()[axis] > 0, op,
                    "image and kernel must not be empty, got {} and {} elements along axis {}", x,
                    kernel, axis);
  const auto spread = checked_mul(std::optional(x.shape()[axis] - 1), stride);
  const auto reach = checked_mul(std::optional(kernel - 1), dilation);
  const auto size = reach ? checked_add(checked_add(spread, *reach), output_pad + 1) : reach;
  check<ShapeError>(size && *size > 2 * pad, op,
                    "the padding must leave something of the result, got {} on both sides along "
                    "axis {} of {}, with a kernel of {}",
                    pad, axis, x, kernel);
  return *size - 2 * pad;
}

Tensor conv2d_as(const char* op, Tensor x, Tensor w, const Conv2dOptions& o) {
  const AutocastInputs autocast(op, {&x, &w});
  const Size2d end = o.padding_end.value_or(o.padding);
  check(o.stride.h > 0 && o.stride.w > 0 && o.dilation.h > 0 && o.dilation.w > 0 &&
            o.padding.h >= 0 && o.padding.w >= 0 && end.h >= 0 && end.w >= 0 && o.groups > 0,
        op, "stride, dilation and groups must be positive and padding not negative");
  check<ShapeError>(x.shape()[3] == w.shape()[3] * o.groups && w.shape()[0] % o.groups == 0, op,
                    "channels must be weight channels times groups, got {} and {} with {} groups",
                    x, w, o.groups);
  check_same_float(x, w, op);
  if (o.padding_mode != PaddingMode::zeros) {
    x = pad(std::move(x), {0, o.padding.h, o.padding.w, 0}, {0, end.h, end.w, 0}, o.padding_mode);
    return conv2d_as(op, std::move(x), std::move(w), {o.stride, 0, o.dilation, o.groups});
  }
  const int64_t h =
      window_places(op, x, 1, w.shape()[1], o.stride.h, o.padding.h, o.dilation.h, end.h);
  const int64_t width =
      window_places(op, x, 2, w.shape()[2], o.stride.w, o.padding.w, o.dilation.w, end.w);
  const Shape y = {x.shape()[0], h, width, w.shape()[0]};
  check_sizes(op, y, size_of(x.dtype()));
  const ConvAttrs attrs{o.stride, o.padding, o.dilation, o.groups, x.shape(), w.shape(), y};
  return apply1(conv_op, attrs, std::move(x), std::move(w));
}

Tensor conv_transpose2d_as(const char* op, Tensor x, Tensor w, const Tensor& bias,
                           const ConvTranspose2dOptions& o) {
  const AutocastInputs autocast(op, {&x, &w});
  check(o.stride.h > 0 && o.stride.w > 0 && o.dilation.h > 0 && o.dilation.w > 0 &&
            o.padding.h >= 0 && o.padding.w >= 0 && o.groups > 0,
        op, "stride, dilation and groups must be positive and padding not negative");
  const auto fits = [](int extra, int stride, int dilation) {
    return extra >= 0 && extra < std::max(stride, dilation);
  };
  check(fits(o.output_padding.h, o.stride.h, o.dilation.h) &&
            fits(o.output_padding.w, o.stride.w, o.dilation.w),
        op, "output_padding must be less than the stride or the dilation, got {}x{}",
        o.output_padding.h, o.output_padding.w);
  check<ShapeError>(x.shape()[3] == w.shape()[0] && w.shape()[0] % o.groups == 0, op,
                    "channels must be the weight's first axis, which groups divide, got {} and {} "
                    "with {} groups",
                    x, w, o.groups);
  check_same_float(x, w, op);
  const int64_t h = transposed_size(op, x, 1, w.shape()[1], o.stride.h, o.padding.h,
                                    o.output_padding.h, o.dilation.h);
  const int64_t width = transposed_size(op, x, 2, w.shape()[2], o.stride.w, o.padding.w,
                                        o.output_padding.w, o.dilation.w);
  const auto channels = checked_mul(std::optional(w.shape()[3]), o.groups);
  check<ShapeError>(channels.has_value(), op, "has too many channels, got {} with {} groups", w,
                    o.groups);
  check_bias(op, bias, w, *channels);
  const Shape y = {x.shape()[0], h, width, *channels};
  check_sizes(op, y, size_of(x.dtype()));
  const ConvAttrs attrs{o.stride, o.padding, o.dilation, o.groups, y, w.shape(), x.shape()};
  return apply1(transposed_op, attrs, std::move(x), std::move(w));
}

// A sequence as an image of one line, and a weight likewise.
Tensor as_line(Tensor t) {
  return unsqueeze(std::move(t), 1);
}

}  // namespace

void detail::conv_into(const char* kernel, const ConvAttrs& attrs, const Tensor& a, const Tensor& b,
                       const Tensor& result) {
  if (result.numel() == 0) return;
  if (a.numel() == 0 || b.numel() == 0) {  // an empty batch gives a zero weight gradient
    fill_(result, 0);
    return;
  }
  const double flops = 2.0 * static_cast<double>(attrs.y.numel()) *
                       static_cast<double>(attrs.w[1] * attrs.w[2] * attrs.w[3]);
  rw::launch(kernel, {in(a), in(b), out(result)}, conv_params(attrs),
             {.threads = {count32(result.numel(), kernel), 1, 1}, .flops = flops});
}

void detail::check_bias(const char* op, const Tensor& bias, const Tensor& weight, int64_t outputs) {
  if (!bias.defined()) return;
  check<ShapeError>(bias.shape() == Shape{outputs}, op, "bias must be [O], got {} and weight {}",
                    bias, weight);
  check<DTypeError>(is_float(bias.dtype()), op, "bias must be float, got {}", bias);
}

Tensor detail::add_bias(Tensor y, Tensor bias) {
  if (!bias.defined()) return y;
  bias = Autocast::as(std::move(bias), y.dtype());
  return add(std::move(y), std::move(bias));
}

Tensor conv2d(Tensor x, Tensor w, const Conv2dOptions& options) {
  check<ShapeError>(x.rank() == 4 && w.rank() == 4, "conv2d",
                    "needs x [N, H, W, C] and weight [O, KH, KW, C / groups], got {} and {}", x, w);
  return conv2d_as("conv2d", std::move(x), std::move(w), options);
}

Tensor conv2d(Tensor x, Tensor weight, Tensor bias, const Conv2dOptions& options) {
  if (weight.rank() == 4) check_bias("conv2d", bias, weight, weight.shape()[0]);
  return add_bias(conv2d(std::move(x), std::move(weight), options), std::move(bias));
}

Conv2dOptions same_padding(Size2d kernel, Conv2dOptions options) {
  check(options.stride == Size2d(1), "same_padding", "the stride must be 1, got {}x{}",
        options.stride.h, options.stride.w);
  check(kernel.h > 0 && kernel.w > 0 && options.dilation.h > 0 && options.dilation.w > 0,
        "same_padding", "kernel and dilation must be positive, got {}x{} and {}x{}", kernel.h,
        kernel.w, options.dilation.h, options.dilation.w);
  const Size2d reach = {options.dilation.h * (kernel.h - 1), options.dilation.w * (kernel.w - 1)};
  options.padding = {reach.h / 2, reach.w / 2};
  options.padding_end = Size2d(reach.h - reach.h / 2, reach.w - reach.w / 2);
  return options;
}

Tensor conv1d(Tensor x, Tensor w, Tensor bias, const Conv1dOptions& o) {
  check<ShapeError>(x.rank() == 3 && w.rank() == 3, "conv1d",
                    "needs x [N, L, C] and weight [O, K, C / groups], got {} and {}", x, w);
  check_bias("conv1d", bias, w, w.shape()[0]);
  Conv2dOptions line{{1, o.stride}, {0, o.padding}, {1, o.dilation}, o.groups};
  if (o.padding_end) line.padding_end = Size2d(0, *o.padding_end);
  line.padding_mode = o.padding_mode;
  Tensor y = conv2d_as("conv1d", as_line(std::move(x)), as_line(std::move(w)), line);
  return add_bias(squeeze(std::move(y), 1), std::move(bias));
}

Tensor conv_transpose2d(Tensor x, Tensor w, Tensor bias, const ConvTranspose2dOptions& o) {
  check<ShapeError>(x.rank() == 4 && w.rank() == 4, "conv_transpose2d",
                    "needs x [N, H, W, I] and weight [I, KH, KW, O / groups], got {} and {}", x, w);
  Tensor y = conv_transpose2d_as("conv_transpose2d", std::move(x), std::move(w), bias, o);
  return add_bias(std::move(y), std::move(bias));
}

Tensor conv_transpose1d(Tensor x, Tensor w, Tensor bias, const ConvTranspose1dOptions& o) {
  check<ShapeError>(x.rank() == 3 && w.rank() == 3, "conv_transpose1d",
                    "needs x [N, L, I] and weight [I, K, O / groups], got {} and {}", x, w);
  const ConvTranspose2dOptions line{
      {1, o.stride}, {0, o.padding}, {0, o.output_padding}, {1, o.dilation}, o.groups};
  Tensor y = conv_transpose2d_as("conv_transpose1d", as_line(std::move(x)), as_line(std::move(w)),
                                 bias, line);
  return add_bias(squeeze(std::move(y), 1), std::move(bias));
}

}  // namespace rw
