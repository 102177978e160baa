// Convolution of volumes by 2-d convolutions of planes whose channels hold the taps of the depth
// side by side. So the kernels sum over all taps in f32, and the copies are a few percent of the
// work wherever there is much work.
#include "core/autograd/gradient_op.h"
#include "ops/matmul.h"
#include "ops/network/conv.h"
#include "ops/network/conv_kernels.h"
#include "ops/network/pool.h"
#include "ops/network/vision.h"

namespace rw {

using namespace detail;

namespace {

struct VolumeAttrs {
  Size3d stride, padding, dilation;  // padding: in front, above, to the left
  int groups;
  Shape x, w, y;
};

// Where tap k of the depth meets the volume: planes x, x + stride, ... for the results y, y + 1,
// ...
struct Meeting {
  int64_t x, y, count;
};

Meeting meeting(const VolumeAttrs& a, int64_t k) {
  const int64_t stride = a.stride.d, shift = k * a.dilation.d - a.padding.d;
  const int64_t first = shift < 0 ? (-shift + stride - 1) / stride : 0;
  const int64_t room = a.x[1] - 1 - shift;
  const int64_t end = room < 0 ? 0 : std::min(a.y[1], room / stride + 1);
  return {first * stride + shift, first, std::max<int64_t>(0, end - first)};
}

// Whether the planes can be convolved without a copy.
bool is_flat_kernel(const VolumeAttrs& a) {
  return a.w[1] == 1 && a.stride.d == 1 && a.padding.d == 0 && a.x[1] == a.y[1];
}

// t [n, planes, H, W, groups * channels] as [n, planes, H W, groups, channels].
Tensor in_groups(const Tensor& t, int64_t groups) {
  const Shape& s = t.shape();
  return reshape(t, {s[0], s[1], s[2] * s[3], groups, s[4] / groups});
}

// [n * planes, H, W, groups * taps * channels]: for each of `planes` planes, the planes of t [n,
// ..., H, W, groups * channels] that its taps meet, or zeros where there is none. With `gathers`
// these are planes of y from x, otherwise planes of x from y.
Tensor with_taps(const VolumeAttrs& a, const Tensor& t, bool gathers) {
  const Shape& s = t.shape();
  if (is_flat_kernel(a)) return reshape(t, {s[0] * s[1], s[2], s[3], s[4]});
  const int64_t taps = a.w[1], planes = gathers ? a.y[1] : a.x[1], groups = a.groups;
  const Tensor from = in_groups(t, groups);
  const Tensor all = full({s[0], planes, s[2] * s[3], groups, taps, s[4] / groups}, 0, t.dtype(),
                          t.device().shared_from_this());
  for (int64_t k = 0; k < taps; ++k) {
    const Meeting m = meeting(a, k);
    if (m.count == 0) continue;
    const int64_t step = a.stride.d, last = m.x + (m.count - 1) * step + 1;
    const Tensor to = select(all, 4, k);
    if (gathers)
      copy_into(slice(from, 1, m.x, last, step), slice(to, 1, m.y, m.y + m.count));
    else
      copy_into(slice(from, 1, m.y, m.y + m.count), slice(to, 1, m.x, last, step));
  }
  return reshape(all, {s[0] * planes, s[2], s[3], groups * taps * (s[4] / groups)});
}

// The attributes for the planes of `n` samples. The taps lie beside each other on the side that is
// gathered.
ConvAttrs plane_attrs(const VolumeAttrs& a, int64_t n, bool gathers) {
  const int64_t taps = a.w[1], planes = n * (gathers ? a.y[1] : a.x[1]);
  const int64_t in = gathers ? taps * a.x[4] : a.x[4], out = gathers ? a.y[4] : taps * a.y[4];
  return {{a.stride.h, a.stride.w},     {a.padding.h, a.padding.w},
          {a.dilation.h, a.dilation.w}, a.groups,
          {planes, a.x[2], a.x[3], in}, {out, a.w[2], a.w[3], in / a.groups},
          {planes, a.y[2], a.y[3], out}};
}

// The weight [O, KD, KH, KW, C / groups] as [O, KH, KW, KD * C / groups].
Tensor taps_as_inputs(const VolumeAttrs& a, const Tensor& w) {
  return reshape(contiguous(permute(w, {0, 2, 3, 1, 4})),
                 {a.w[0], a.w[2], a.w[3], a.w[1] * a.w[4]});
}

// The weight as [groups * KD * O / groups, KH, KW, C / groups].
Tensor taps_as_outputs(const VolumeAttrs& a, const Tensor& w) {
  const Tensor split = reshape(w, {a.groups, a.w[0] / a.groups, a.w[1], a.w[2], a.w[3], a.w[4]});
  return reshape(contiguous(permute(split, {0, 2, 1, 3, 4, 5})),
                 {a.w[0] * a.w[1], a.w[2], a.w[3], a.w[4]});
}

// Calls body(first, end) for runs of samples. The planes with taps of a run take at most 32 MiB,
// with `bytes` per sample, or a run is a single sample.
template <class Body>
void each_run(int64_t samples, int64_t bytes, const Body& body) {
  const int64_t run = std::max<int64_t>(1, (int64_t{32} << 20) / std::max<int64_t>(1, bytes));
  for (int64_t first = 0; first < samples; first += run)
    body(first, std::min(samples, first + run));
}

int64_t bytes_with_taps(const VolumeAttrs& a, bool gathers, DType dtype) {
  if (is_flat_kernel(a)) return 0;
  const Shape& from = gathers ? a.x : a.y;
  return (gathers ? a.y : a.x)[1] * from[2] * from[3] * a.w[1] * from[4] *
         static_cast<int64_t>(size_of(dtype));
}

std::vector<Tensor> volume_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const VolumeAttrs&>(attrs);
  const Tensor x = contiguous(inputs[0]);
  const Tensor w = taps_as_inputs(a, inputs[1]);
  Tensor y = empty_on(x, a.y, x.dtype());
  each_run(a.x[0], bytes_with_taps(a, true, x.dtype()), [&](int64_t first, int64_t end) {
    const ConvAttrs planes = plane_attrs(a, end - first, true);
    conv_into("conv2d", planes, with_taps(a, slice(x, 0, first, end), true), w,
              reshape(slice(y, 0, first, end), planes.y));
  });
  return one(std::move(y));
}

Tensor volume_wgrad(const VolumeAttrs& a, const Tensor& x, const Tensor& dy) {
  const Shape shape = plane_attrs(a, 1, true).w;
  Tensor dw;
  each_run(a.x[0], bytes_with_taps(a, true, x.dtype()), [&](int64_t first, int64_t end) {
    const ConvAttrs planes = plane_attrs(a, end - first, true);
    Tensor part = empty_on(x, shape, DType::f32);
    conv_into("conv2d_wgrad", planes, with_taps(a, slice(x, 0, first, end), true),
              reshape(slice(dy, 0, first, end), planes.y), part);
    if (dw.defined())
      accumulate(part, dw);
    else
      dw = std::move(part);
  });
  if (!dw.defined()) dw = full(shape, 0, DType::f32, x.device().shared_from_this());
  const Tensor split = reshape(dw, {a.w[0], a.w[2], a.w[3], a.w[1], a.w[4]});
  return contiguous(permute(split, {0, 3, 1, 2, 4}));
}

Tensor volume_dgrad(const VolumeAttrs& a, const Tensor& dy, const Tensor& weight) {
  const Tensor w = taps_as_outputs(a, contiguous(weight));
  Tensor dx = empty_on(dy, a.x, dy.dtype());
  each_run(a.x[0], bytes_with_taps(a, false, dy.dtype()), [&](int64_t first, int64_t end) {
    const ConvAttrs planes = plane_attrs(a, end - first, false);
    conv_into("conv2d_dgrad", planes, with_taps(a, slice(dy, 0, first, end), false), w,
              reshape(slice(dx, 0, first, end), planes.x));
  });
  return dx;
}

std::vector<Tensor> volume_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<VolumeAttrs>();
  const Tensor dy = contiguous(std::move(dys[0]));
  Tensor dx, dw;
  if (r.needs_grad(1)) dw = volume_wgrad(a, contiguous(r.take_input(0)), dy);
  if (r.needs_grad(0)) dx = volume_dgrad(a, dy, r.input(1));
  return {std::move(dx), std::move(dw)};
}

const Op volume_op = {.name = "conv3d",
                      .forward = volume_forward,
                      .vjp = volume_vjp,
                      .saves = product_saves,
                      .is_heavy = true,
                      .saves_8_bits = true,
                      .second = bilinear_second};

void check_options(const Conv3dOptions& o, const Size3d& end) {
  const auto least = [](const Size3d& s) { return std::min({s.d, s.h, s.w}); };
  check(least(o.stride) > 0 && least(o.dilation) > 0 && o.groups > 0 && least(o.padding) >= 0 &&
            least(end) >= 0,
        "conv3d", "stride, dilation and groups must be positive and padding not negative");
}

}  // namespace

Tensor conv3d(Tensor x, Tensor w, Tensor bias, const Conv3dOptions& o) {
  const AutocastInputs autocast("conv3d", {&x, &w});
  check<ShapeError>(x.rank() == 5 && w.rank() == 5, "conv3d",
                    "needs x [N, D, H, W, C] and weight [O, KD, KH, KW, C / groups], got {} and {}",
                    x, w);
  const Size3d end = o.padding_end.value_or(o.padding);
  check_options(o, end);
  check<ShapeError>(x.shape()[4] == w.shape()[4] * o.groups && w.shape()[0] % o.groups == 0,
                    "conv3d",
                    "channels must be weight channels times groups, got {} and {} with {} groups",
                    x, w, o.groups);
  check_same_float(x, w, "conv3d");
  check_bias("conv3d", bias, w, w.shape()[0]);
  if (o.padding_mode != PaddingMode::zeros) {
    const Size3d& p = o.padding;
    x = pad(std::move(x), {0, p.d, p.h, p.w, 0}, {0, end.d, end.h, end.w, 0}, o.padding_mode);
    return conv3d(std::move(x), std::move(w), std::move(bias), {o.stride, 0, o.dilation, o.groups});
  }
  const auto places = [&](int axis, int stride, int before, int dilation, int after) {
    return window_places("conv3d", x, axis, w.shape()[axis], stride, before, dilation, after);
  };
  const int64_t d = places(1, o.stride.d, o.padding.d, o.dilation.d, end.d);
  const int64_t h = places(2, o.stride.h, o.padding.h, o.dilation.h, end.h);
  const int64_t width = places(3, o.stride.w, o.padding.w, o.dilation.w, end.w);
  const Shape y = {x.shape()[0], d, h, width, w.shape()[0]};
  check_sizes("conv3d", y, size_of(x.dtype()));
  const VolumeAttrs attrs{o.stride, o.padding, o.dilation, o.groups, x.shape(), w.shape(), y};
  return add_bias(apply1(volume_op, attrs, std::move(x), std::move(w)), std::move(bias));
}

}  // namespace rw
