// Softmax and losses. Everything is computed in f32; only storage may be f16.
#include "ops/losses/loss.h"

#include "ops/detail.h"
#include "ops/layout/index.h"
#include "ops/losses/losses.h"
#include "ops/network/row_launch.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

// ---- softmax over the last axis
// ------------------------------------------------------------------
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
  launch_rows("softmax", "softmax_kept", {in(x), out(y)}, rows_cols(x),
              std::any_cast<const SoftmaxAttrs&>(attrs).log);
  return one(std::move(y));
}

std::vector<Tensor> softmax_vjp(Record& r, std::span<Tensor> dys) {
  const Tensor dy = contiguous(std::move(dys[0]));
  Tensor dx = empty_on(dy, dy.shape(), dy.dtype());
  const auto params = rows_cols(dy);
  launch_rows("softmax_grad", "softmax_grad_kept", {in(r.output(0)), in(dy), out(dx)},
              kernels::SoftmaxGradParams{.rows = params.rows, .cols = params.cols},
              r.attributes<SoftmaxAttrs>().log);
  return one(std::move(dx));
}

Saves save_output(const std::any&, uint32_t) {
  return {0, 1};
}

const Op softmax_op = {"softmax", softmax_forward, softmax_vjp, save_output};
const Op log_softmax_op = {"log_softmax", softmax_forward, softmax_vjp, save_output};

Tensor softmax_along(const Op& op, bool log, Tensor x, int axis) {
  const AutocastInputs autocast(op.name, {&x});
  check_float(x, op.name);
  axis = normalize_axis(axis, x.rank(), op.name);
  const bool is_last = axis == x.rank() - 1;
  if (!is_last) x = transpose(std::move(x), axis, -1);
  Tensor y = apply1(op, SoftmaxAttrs{log}, one(std::move(x)));
  return is_last ? y : transpose(std::move(y), axis, -1);
}

// ---- cross entropy: outputs loss and log-sum-exp per row
// -----------------------------------------
std::vector<Tensor> cross_entropy_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& o = std::any_cast<const CrossEntropyOptions&>(attrs);
  const Tensor logits = contiguous(inputs[0]), target = contiguous(inputs[1]);
  const int64_t rows = logits.shape()[0];
  Tensor loss = empty_on(logits, {rows}, DType::f32), lse = empty_on(logits, {rows}, DType::f32);
  launch("cross_entropy", {in(logits), in(target), out(loss), out(lse)},
         kernels::CrossEntropyParams{.rows = count32(rows, "cross_entropy"),
                                     .cols = count32(logits.shape()[1], "cross_entropy"),
                                     .smoothing = o.label_smoothing,
                                     .ignore_index = o.ignore_index},
         {.threads = {count32(rows, "cross_entropy"), 1, 1}});
  return {std::move(loss), std::move(lse)};
}

std::vector<Tensor> cross_entropy_vjp(Record& r, std::span<Tensor> dys) {
  const auto& o = r.attributes<CrossEntropyOptions>();
  const Tensor logits = contiguous(r.input(0)), target = contiguous(r.input(1)),
               dloss = contiguous(dys[0]);
  Tensor dlogits = empty_on(logits, logits.shape(), logits.dtype());
  launch("cross_entropy_grad", {in(logits), in(target), in(r.output(1)), in(dloss), out(dlogits)},
         kernels::CrossEntropyGradParams{.rows = count32(logits.shape()[0], "cross_entropy"),
                                         .cols = count32(logits.shape()[1], "cross_entropy"),
                                         .smoothing = o.label_smoothing,
                                         .ignore_index = o.ignore_index},
         {.threads = {flat_threads(logits.numel()), 1, 1}});
  return {std::move(dlogits), Tensor()};
}

const Op cross_entropy_op = {"cross_entropy", cross_entropy_forward, cross_entropy_vjp,
                             [](const std::any&, uint32_t) {
                               return Saves{3, 2};
                             }};

}  // namespace

Tensor detail::count_valid(const Tensor& target, int ignore_index) {
  const NoGrad guard;
  const auto device = target.device().shared_from_this();
  const Tensor ignored = full({}, static_cast<float>(ignore_index), DType::i32, device);
  return maximum(sum(cast(not_equal(target, ignored), DType::f32)),
                 full({}, 1, DType::f32, device));
}

Tensor softmax(Tensor x, int axis) {
  return softmax_along(softmax_op, false, std::move(x), axis);
}
Tensor log_softmax(Tensor x, int axis) {
  return softmax_along(log_softmax_op, true, std::move(x), axis);
}

Tensor cross_entropy(Tensor logits, Tensor target, const CrossEntropyOptions& o) {
  if (is_float(target.dtype()))
    return cross_entropy(std::move(logits), std::move(target), Tensor(), o);
  const AutocastInputs autocast("cross_entropy", {&logits}, true);
  check_float(logits, "cross_entropy");
  check<ShapeError>(logits.rank() == 2 && target.shape() == Shape{logits.shape()[0]},
                    "cross_entropy", "needs logits [N, C] and target [N], got {} and {}", logits,
                    target);
  check<DTypeError>(target.dtype() == DType::i32, "cross_entropy", "the target must be i32, got {}",
                    target);
  check(o.label_smoothing >= 0 && o.label_smoothing < 1, "cross_entropy",
        "label_smoothing must be in [0, 1), got {}", o.label_smoothing);
  check_indices("cross_entropy", "the target", target, logits.shape()[1] - 1, o.ignore_index);
  Tensor loss = apply1(cross_entropy_op, o, TensorList(std::move(logits), target));
  if (o.reduction == Reduction::none) return loss;
  loss = sum(loss);
  if (o.reduction == Reduction::sum) return loss;
  return loss / count_valid(target, o.ignore_index);
}

Tensor mse_loss(Tensor x, Tensor target) {
  return mse_loss(std::move(x), std::move(target), Reduction::mean);
}

}  // namespace rw
