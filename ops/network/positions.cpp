#include "ops/network/positions.h"

#include <bit>
#include <cmath>
#include <limits>

#include "core/autograd/gradient_op.h"
#include "ops/detail.h"

namespace rw {

using namespace detail;

namespace {

struct RotaryAttrs {
  int64_t offset;
  bool placed, interleaved, backward;
  float scale;
};

// `positions` are read only if the call says so.
Tensor turn(const Tensor& x, const Tensor& frequencies, const Tensor& positions,
            const RotaryAttrs& a) {
  const auto u = [](int64_t n) { return count32(n, "rotary"); };
  const Shape& shape = x.shape();
  Tensor y = empty_on(x, shape, x.dtype());
  kernels::RotaryParams params{.heads = u(shape[1]),
                               .rows = u(shape[2]),
                               .dim = u(shape[3]),
                               .pairs = u(x.numel() / 2),
                               .first = u(a.offset),
                               .placed = a.placed,
                               .interleaved = a.interleaved,
                               .backward = a.backward,
                               .scale = a.scale};
  for (int axis = 0; axis < 4; ++axis) params.x_stride[axis] = u(x.strides()[axis]);
  if (params.pairs > 0)
    launch("rotary", {in(x), in(frequencies), in(positions), out(y)}, params,
           {.threads = {params.pairs, 1, 1}});
  return y;
}

// A binding that nobody reads needs a tensor all the same.
template <class F>
Tensor positions_of(const RotaryAttrs& a, const Tensor& like, const F& given) {
  return a.placed ? contiguous(given()) : empty_on(like, {1}, DType::i32);
}

std::vector<Tensor> rotary_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const RotaryAttrs&>(attrs);
  return one(turn(inputs[0], inputs[1], positions_of(a, inputs[0], [&] { return inputs[2]; }), a));
}

std::vector<Tensor> rotary_vjp(Record& r, std::span<Tensor> dy) {
  RotaryAttrs back = r.attributes<RotaryAttrs>();
  back.backward = true;
  const Tensor positions = positions_of(back, dy[0], [&] { return r.input(2); });
  std::vector<Tensor> gradients(r.inputs.size());
  gradients[0] = turn(dy[0], r.input(1), positions, back);
  return gradients;
}

const Op rotary_op = {
    .name = "rotary",
    .forward = rotary_forward,
    .vjp = rotary_vjp,
    .saves =
        [](const std::any& attrs, uint32_t) {
          return Saves{std::any_cast<const RotaryAttrs&>(attrs).placed ? 6u : 2u, 0};
        },
    .second = linear_second};

// The schedule of theta for `pairs` pairs, in f64 and then rounded.
Tensor frequencies_of(double theta, int64_t pairs, const Tensor& like) {
  std::vector<float> values;
  for (int64_t i = 0; i < pairs; ++i)
    values.push_back(
        static_cast<float>(std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs))));
  Tensor frequencies = empty_on(like, {pairs}, DType::f32);
  write_elements(frequencies, 0, pairs, values.data());
  return frequencies;
}

}  // namespace

Tensor rotary(Tensor x, const RotaryOptions& o) {
  check<ShapeError>(x.rank() == 4 && x.size(3) > 0 && x.size(3) % 2 == 0, "rotary",
                    "needs x [B, H, S, D] with an even D, got {}", x);
  check_float(x, "rotary");
  check(o.offset >= 0 && o.offset <= std::numeric_limits<int32_t>::max() - x.size(2), "rotary",
        "positions must be 0 to 2^31 - 1, got {} rows from {} on", x.size(2), o.offset);
  check(o.theta > 0 && std::isfinite(o.theta), "rotary", "theta must be positive, got {}", o.theta);
  check(std::isfinite(o.scale), "rotary", "the scale must be finite, got {}", o.scale);
  const int64_t pairs = x.size(3) / 2;
  Tensor frequencies =
      o.frequencies ? contiguous(o.frequencies) : frequencies_of(o.theta, pairs, x);
  check<ShapeError>(frequencies.shape() == Shape{pairs}, "rotary",
                    "frequencies must be [{}], got {}", pairs, frequencies);
  check<DTypeError>(frequencies.dtype() == DType::f32, "rotary", "frequencies must be f32, got {}",
                    frequencies);
  check<AutogradError>(!frequencies.requires_grad(), "rotary",
                       "frequencies get no gradient: detach them");
  const RotaryAttrs attrs{o.offset, o.positions.defined(), o.interleaved, false, o.scale};
  TensorList inputs(std::move(x), std::move(frequencies));
  if (o.positions) {
    check<ShapeError>(o.positions.shape() == Shape{inputs[0].size(0), inputs[0].size(2)}, "rotary",
                      "positions must be [B, S] of {}, got {}", inputs[0], o.positions);
    check<DTypeError>(o.positions.dtype() == DType::i32, "rotary", "positions must be i32, got {}",
                      o.positions);
    inputs.push_back(o.positions);
  }
  return apply1(rotary_op, attrs, std::move(inputs));
}

Tensor alibi_slopes(int64_t heads) {
  check(heads > 0, "alibi_slopes", "there must be heads, got {}", heads);
  const auto lower = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<float> slopes;
  for (int64_t h = 0; h < heads; ++h) {
    const double power = h < lower
                             ? static_cast<double>(h + 1) / static_cast<double>(lower)
                             : (static_cast<double>(h - lower) + 0.5) / static_cast<double>(lower);
    slopes.push_back(static_cast<float>(std::exp2(-8 * power)));
  }
  return tensor(slopes, {heads});
}

}  // namespace rw
