// Softmax, computed in f32; only storage may be f16.
#include "core/autograd/gradient_op.h"
#include "ops/detail.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

// Works over the last axis.
struct SoftmaxAttrs {
  bool log;
};

kernels::SoftmaxParams rows_cols(const Tensor& x) {
  const int64_t cols = x.size(-1);
  return {.offset = {},
          .rows = count32(cols ? x.numel() / cols : 0, "softmax"),
          .cols = count32(cols, "softmax")};
}

std::vector<Tensor> softmax_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const Tensor x = contiguous(inputs[0]);
  Tensor y = empty_on(x, x.shape(), x.dtype());
  launch("softmax", {in(x), out(y)}, rows_cols(x),
         {.variant = {std::any_cast<const SoftmaxAttrs&>(attrs).log}});
  return one(std::move(y));
}

std::vector<Tensor> softmax_vjp(Record& r, std::span<Tensor> dys) {
  const Tensor dy = contiguous(std::move(dys[0]));
  Tensor dx = empty_on(dy, dy.shape(), dy.dtype());
  launch("softmax_grad", {in(r.output(0)), in(dy), out(dx)}, rows_cols(dy),
         {.variant = {r.attributes<SoftmaxAttrs>().log}});
  return one(std::move(dx));
}

// softmax: dx = y (dy - sum(y dy)); log_softmax: dx = dy - exp(y) sum(dy).
void softmax_second(SecondOrder& s) {
  const Tensor y = wide(s.output(0)), g = wide(s.g()), dy = wide(s.dy());
  const auto total = [](const Tensor& t) { return sum(t, {-1}, true); };
  if (s.attributes<SoftmaxAttrs>().log) {
    const Tensor part = exp(y) * g;
    if (s.needs_dy()) s.give_dy(g - total(part));
    if (s.needs_output(0)) s.give_output(0, neg(part * total(dy)));
    return;
  }
  if (s.needs_dy()) s.give_dy(y * (g - total(y * g)));
  if (s.needs_output(0)) s.give_output(0, g * (dy - total(y * dy)) - dy * total(y * g));
}

const Op softmax_op = {.name = "softmax",
                       .forward = softmax_forward,
                       .vjp = softmax_vjp,
                       .saves = saves_always<0, 1>,
                       .saves_8_bits = true,
                       .second = softmax_second};
const Op log_softmax_op = {.name = "log_softmax",
                           .forward = softmax_forward,
                           .vjp = softmax_vjp,
                           .saves = saves_always<0, 1>,
                           .second = softmax_second};

Tensor softmax_along(const Op& op, bool log, Tensor x, int axis) {
  const AutocastInputs autocast(op.name, {&x});
  check_float(x, op.name);
  axis = normalize_axis(axis, x.rank(), op.name);
  const bool is_last = axis == x.rank() - 1;
  if (!is_last) x = transpose(std::move(x), axis, -1);
  Tensor y = apply1(op, SoftmaxAttrs{log}, std::move(x));
  return is_last ? y : transpose(std::move(y), axis, -1);
}

}  // namespace

Tensor softmax(Tensor x, int axis) {
  return softmax_along(softmax_op, false, std::move(x), axis);
}
Tensor log_softmax(Tensor x, int axis) {
  return softmax_along(log_softmax_op, true, std::move(x), axis);
}

}  // namespace rw
