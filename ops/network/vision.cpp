// Other sizes and borders of images, sequences and volumes.
#include "ops/network/vision.h"

#include <cmath>

#include "core/autograd/gradient_op.h"
#include "core/base/checked.h"
#include "ops/detail.h"

namespace rw {

using namespace detail;

namespace {

// ---- interpolate: two axes of [N, H, W, C] at a time --------------------------------------------
struct ResampleAttrs {
  uint32_t kind;  // RESAMPLE_*
  bool align;
  float scale_h, scale_w;
  Shape x, y;
};

// The most rounds that one thread may make.
constexpr int64_t most_rounds = 65000;

// The most outputs that may read one input, along an axis.
int64_t most_readers(int64_t outputs, float scale) {
  return scale == 0 ? outputs : std::min(outputs, static_cast<int64_t>(4 / scale) + 6);
}

// Runs resample2d to y, or its gradient to x.
Tensor resample(const char* kernel, const ResampleAttrs& a, const Tensor& from, const Shape& to) {
  Tensor result = empty_on(from, to, from.dtype());
  if (result.numel() == 0) return result;
  const auto u = [](int64_t v) { return count32(v, "interpolate"); };
  const bool whole = a.x[3] % REWIND_FLAT == 0 && is_flat(from);
  const uint32_t n = u(result.numel());
  launch(kernel, {in(from), out(result)},
         kernels::ResampleParams{.batch = u(a.x[0]),
                                 .in_h = u(a.x[1]),
                                 .in_w = u(a.x[2]),
                                 .channels = u(a.x[3]),
                                 .out_h = u(a.y[1]),
                                 .out_w = u(a.y[2]),
                                 .scale_h = a.scale_h,
                                 .scale_w = a.scale_w},
         {.threads = {whole ? n / REWIND_FLAT : n, 1, 1}, .variant = {a.kind, a.align, whole}});
  return result;
}

std::vector<Tensor> resample_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const ResampleAttrs&>(attrs);
  return one(resample("resample2d", a, contiguous(inputs[0]), a.y));
}

std::vector<Tensor> resample_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<ResampleAttrs>();
  const Tensor dy = contiguous(std::move(dys[0]));
  if (most_readers(a.y[1], a.scale_h) * most_readers(a.y[2], a.scale_w) <= most_rounds)
    return one(resample("resample2d_grad", a, dy, a.x));
  // A thread would look at too many outputs, so this goes along the lines first, then across them.
  ResampleAttrs lines = a, columns = a;
  lines.x[1] = a.y[1], lines.scale_h = 1;
  columns.y[2] = a.x[2], columns.scale_w = 1;
  const Tensor of_lines = resample("resample2d_grad", lines, wide(dy), lines.x);
  return one(resample("resample2d_grad", columns, of_lines, a.x));
}

const Op resample_op = {.name = "interpolate",
                        .forward = resample_forward,
                        .vjp = resample_vjp,
                        .second = linear_second};

struct Axis {
  int64_t size;
  float scale;  // elements of x per element of the result
};

// The size of the result's axis `which`, counted between the first and the last axis.
Axis resampled(const Tensor& x, int which, const InterpolateOptions& o) {
  const int64_t in = x.shape()[which + 1];
  const auto entry = [&](const auto& list) {
    return list[list.size() == 1 ? 0 : static_cast<size_t>(which)];
  };
  int64_t out = 0;
  double factor = 0;
  if (o.size.empty()) {
    factor = entry(o.scale_factor);
    const double size = std::floor(static_cast<double>(in) * factor);
    check(factor > 0 && size < 0x1p40, "interpolate", "scale_factor must be positive, got {}",
          factor);
    out = static_cast<int64_t>(size);
  } else {
    out = entry(o.size);
  }
  // The kernels' f32 positions and loops limit the sizes.
  check<ShapeError>(in > 0 && out > 0 && std::max(in, out) <= int64_t{1} << 22, "interpolate",
                    "sizes must be 1 to 2^22, got {} for axis {} of {}", out, which + 1, x);
  const bool aligned = o.align_corners &&
                       (o.mode == InterpolationMode::linear || o.mode == InterpolationMode::cubic);
  float scale = factor > 0 ? static_cast<float>(1 / factor)
                           : static_cast<float>(in) / static_cast<float>(out);
  if (aligned) scale = out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1) : 0.0f;
  check<ShapeError>(most_readers(out, scale) <= most_rounds, "interpolate",
                    "an element may spread over {} at most, got {} for axis {} of {}", most_rounds,
                    out, which + 1, x);
  return {out, scale};
}

void check_interpolation(const Tensor& x, const InterpolateOptions& o) {
  check_float(x, "interpolate");
  check<ShapeError>(x.rank() >= 3 && x.rank() <= 5, "interpolate",
                    "needs x [N, L, C], [N, H, W, C] or [N, D, H, W, C], got {}", x);
  check(o.size.empty() != o.scale_factor.empty(), "interpolate",
        "needs either size or scale_factor, got {} and {} entries", o.size.size(),
        o.scale_factor.size());
  const size_t entries = o.size.size() + o.scale_factor.size();
  check(entries == 1 || entries == static_cast<size_t>(x.rank()) - 2, "interpolate",
        "needs one size or factor, or one for each axis between the first and the last of {}, got "
        "{}",
        x, entries);
  check(o.mode != InterpolationMode::cubic || x.rank() == 4, "interpolate",
        "cubic needs x [N, H, W, C], got {}", x);
  check(o.mode != InterpolationMode::area || x.rank() < 5, "interpolate",
        "area needs x [N, L, C] or [N, H, W, C], got {}", x);
  const bool between = o.mode == InterpolationMode::linear || o.mode == InterpolationMode::cubic;
  check(between || !o.align_corners, "interpolate", "align_corners is for linear and cubic only");
}

// Resamples x [N, H, W, C] along its two middle axes.
Tensor resample_image(Tensor x, const Axis& h, const Axis& w, const InterpolateOptions& o) {
  const Shape y = {x.shape()[0], h.size, w.size, x.shape()[3]};
  check_sizes("interpolate", y, size_of(x.dtype()));
  const ResampleAttrs attrs{
      static_cast<uint32_t>(o.mode), o.align_corners, h.scale, w.scale, x.shape(), y};
  return apply1(resample_op, attrs, std::move(x));
}

// ---- borders ------------------------------------------------------------------------------------
struct BorderAttrs {
  int axis;
  int64_t before, after;
  PaddingMode mode;
};

// Runs pad_axis to the padded shape, or its gradient to `inner`, the shape without padding.
Tensor run_border(const char* kernel, const BorderAttrs& a, const Tensor& from, const Shape& inner,
                  bool is_gradient) {
  Shape padded = inner;
  padded[a.axis] += a.before + a.after;
  Tensor result = empty_on(from, is_gradient ? inner : padded, from.dtype());
  if (result.numel() == 0) return result;
  const auto u = [](int64_t v) { return count32(v, "pad"); };
  const int64_t size = inner[a.axis];
  int64_t outer = 1;
  for (int i = 0; i < a.axis; ++i) outer *= inner[i];
  const int64_t below = inner.numel() / outer / size;
  const bool whole = below % REWIND_FLAT == 0 && is_flat(from);
  const uint32_t n = u(result.numel());
  launch(kernel, {in(from), out(result)},
         kernels::PadAxisParams{.outer = u(outer),
                                .size = u(size),
                                .padded = u(padded[a.axis]),
                                .inner = u(below),
                                .before = u(a.before)},
         {.threads = {whole ? n / REWIND_FLAT : n, 1, 1},
          .variant = {static_cast<uint32_t>(a.mode), whole}});
  return result;
}

std::vector<Tensor> border_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const BorderAttrs&>(attrs);
  return one(run_border("pad_axis", a, contiguous(inputs[0]), inputs[0].shape(), false));
}

std::vector<Tensor> border_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<BorderAttrs>();
  const Tensor dy = contiguous(std::move(dys[0]));
  return one(run_border("pad_axis_grad", a, dy, r.inputs[0].shape, true));
}

const Op border_op = {
    .name = "pad_mode", .forward = border_forward, .vjp = border_vjp, .second = linear_second};

void check_border(const Tensor& x, int axis, int64_t before, int64_t after, PaddingMode mode) {
  const int64_t size = x.shape()[axis];
  const int64_t most = mode == PaddingMode::reflect    ? size - 1
                       : mode == PaddingMode::circular ? size
                       : size > 0                      ? 32767
                                                       : 0;
  check<ShapeError>(
      before >= 0 && after >= 0 && before <= most && after <= most, "pad",
      "sizes must be 0 to {} for this mode (PaddingMode {}), got {} and {} along axis {} of {}",
      most, static_cast<int>(mode), before, after, axis, x);
}

}  // namespace

Tensor interpolate(Tensor x, const InterpolateOptions& o) {
  check_interpolation(x, o);
  std::vector<Axis> axes;
  for (int i = 0; i < x.rank() - 2; ++i) axes.push_back(resampled(x, i, o));
  if (x.rank() == 3) {
    if (o.mode == InterpolationMode::area)
      return adaptive_avg_pool1d(std::move(x), static_cast<int>(axes[0].size));
    Tensor line = unsqueeze(std::move(x), 1);
    return squeeze(resample_image(std::move(line), {1, 1}, axes[0], o), 1);
  }
  if (x.rank() == 4) {
    if (o.mode == InterpolationMode::area)
      return adaptive_avg_pool2d(std::move(x),
                                 {static_cast<int>(axes[0].size), static_cast<int>(axes[1].size)});
    return resample_image(std::move(x), axes[0], axes[1], o);
  }
  // First height and width of all planes, then the depth of all their elements.
  const int64_t n = x.size(0), d = x.size(1), c = x.size(4);
  const int64_t pixels = axes[1].size * axes[2].size;
  const DType dtype = x.dtype();
  x = resample_image(wide(flatten(std::move(x), 0, 1)), axes[1], axes[2], o);
  x = reshape(std::move(x), Shape{n, d, pixels, c});
  x = cast(resample_image(std::move(x), axes[0], {pixels, 1}, o), dtype);
  return reshape(std::move(x), Shape{n, axes[0].size, axes[1].size, axes[2].size, c});
}

Tensor pixel_shuffle(Tensor x, int64_t r) {
  check<ShapeError>(x.rank() == 4, "pixel_shuffle", "needs x [N, H, W, C], got {}", x);
  check(r > 0 && r < 1 << 16, "pixel_shuffle", "the factor must be 1 to 65535, got {}", r);
  check<ShapeError>(x.size(3) % (r * r) == 0, "pixel_shuffle",
                    "the square of the factor {} must divide the channels, got {}", r, x);
  const int64_t n = x.size(0), h = x.size(1), w = x.size(2), c = x.size(3) / (r * r);
  x = permute(reshape(std::move(x), {n, h, w, c, r, r}), {0, 1, 4, 2, 5, 3});
  return reshape(std::move(x), Shape{n, h * r, w * r, c});
}

Tensor pixel_unshuffle(Tensor x, int64_t r) {
  check<ShapeError>(x.rank() == 4, "pixel_unshuffle", "needs x [N, H, W, C], got {}", x);
  check(r > 0 && r < 1 << 16, "pixel_unshuffle", "the factor must be 1 to 65535, got {}", r);
  check<ShapeError>(x.size(1) % r == 0 && x.size(2) % r == 0, "pixel_unshuffle",
                    "the factor {} must divide height and width, got {}", r, x);
  const int64_t n = x.size(0), h = x.size(1) / r, w = x.size(2) / r, c = x.size(3);
  x = permute(reshape(std::move(x), {n, h, r, w, r, c}), {0, 1, 3, 5, 2, 4});
  return reshape(std::move(x), Shape{n, h, w, c * r * r});
}

Tensor pad(Tensor x, const std::vector<int64_t>& before, const std::vector<int64_t>& after,
           PaddingMode mode) {
  if (mode == PaddingMode::zeros) return pad(std::move(x), before, after);
  check_float(x, "pad");
  const auto rank = static_cast<size_t>(x.rank());
  check<ShapeError>(before.size() == rank && after.size() == rank, "pad",
                    "needs one size per axis of {}, got {} and {}", x, before.size(), after.size());
  int padded_axes = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    if (before[at] == 0 && after[at] == 0) continue;
    check_border(x, axis, before[at], after[at], mode);
    ++padded_axes;
  }
  const DType dtype = x.dtype();
  if (padded_axes > 1) x = wide(std::move(x));  // for the sums of the gradient
  for (int axis = 0; axis < static_cast<int>(rank); ++axis) {
    const auto at = static_cast<size_t>(axis);
    if (before[at] == 0 && after[at] == 0) continue;
    Shape padded = x.shape();
    padded[axis] += before[at] + after[at];
    check_sizes("pad", padded, size_of(x.dtype()));
    x = apply1(border_op, BorderAttrs{axis, before[at], after[at], mode}, std::move(x));
  }
  return cast(std::move(x), dtype);
}

}  // namespace rw
