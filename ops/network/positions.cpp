#include "ops/network/positions.h"

#include <bit>
#include <cmath>
#include <limits>

#include "ops/detail.h"

namespace rw {

using namespace detail;

namespace {

struct RotaryAttrs {
  RotaryOptions options;
  bool backward;
};

Tensor turn(const Tensor& x, const RotaryAttrs& a) {
  const auto u = [](int64_t n) { return count32(n, "rotary"); };
  const Shape& shape = x.shape();
  Tensor y = empty_on(x, shape, x.dtype());
  kernels::RotaryParams params{
      .heads = u(shape[1]),
      .rows = u(shape[2]),
      .dim = u(shape[3]),
      .pairs = u(x.numel() / 2),
      .first = u(a.options.offset),
      .interleaved = a.options.interleaved,
      .backward = a.backward,
      .log2_step = static_cast<float>(2 * std::log2(double{a.options.theta}) /
                                      static_cast<double>(shape[3]))};
  for (int axis = 0; axis < 4; ++axis) params.x_stride[axis] = u(x.strides()[axis]);
  if (params.pairs > 0)
    launch("rotary", {in(x), out(y)}, params, {.threads = {params.pairs, 1, 1}});
  return y;
}

const Op rotary_op = {.name = "rotary",
                      .forward =
                          [](const std::any& attrs, std::span<Tensor> inputs) {
                            return one(turn(inputs[0], std::any_cast<const RotaryAttrs&>(attrs)));
                          },
                      .vjp =
                          [](Record& r, std::span<Tensor> dy) {
                            RotaryAttrs back = r.attributes<RotaryAttrs>();
                            back.backward = true;
                            return one(turn(dy[0], back));
                          }};

}  // namespace

Tensor rotary(Tensor x, const RotaryOptions& o) {
  check<ShapeError>(x.rank() == 4 && x.size(3) > 0 && x.size(3) % 2 == 0, "rotary",
                    "needs x [B, H, S, D] with an even D, got {}", x);
  check_float(x, "rotary");
  check(o.offset >= 0 && o.offset <= std::numeric_limits<int32_t>::max() - x.size(2), "rotary",
        "positions must be 0 to 2^31 - 1, got {} rows from {} on", x.size(2), o.offset);
  check(o.theta > 0 && std::isfinite(o.theta), "rotary", "theta must be positive, got {}", o.theta);
  return apply1(rotary_op, RotaryAttrs{o, false}, TensorList(std::move(x)));
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
