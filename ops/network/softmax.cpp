// Softmax, computed in f32; only storage may be f16.
#include "ops/detail.h"

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
  const auto params = rows_cols(dy);
  launch("softmax_grad", {in(r.output(0)), in(dy), out(dx)},
         kernels::SoftmaxGradParams{.rows = params.rows, .cols = params.cols},
         {.variant = {r.attributes<SoftmaxAttrs>().log}});
  return one(std::move(dx));
}

Saves save_output(const std::any&, uint32_t) {
  return {0, 1};
}

const Op softmax_op = {.name = "softmax",
                       .forward = softmax_forward,
                       .vjp = softmax_vjp,
                       .saves = save_output,
                       .saves_8_bits = true};
const Op log_softmax_op = {"log_softmax", softmax_forward, softmax_vjp, save_output};

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
