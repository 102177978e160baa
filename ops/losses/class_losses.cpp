// Losses of classes: cross entropy, also with weights and with probabilities; nll_loss,
// multi_margin_loss. Everything is computed in f32; only storage may be f16.
#include "ops/losses/class_losses.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/autograd/gradient_op.h"
#include "ops/detail.h"
#include "ops/layout/index.h"
#include "ops/losses/losses.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

kernels::ClassLossParams class_loss_params(const Tensor& x, float smoothing, int ignore_index) {
  return {.offset = {},
          .rows = count32(x.shape()[0], "cross_entropy"),
          .cols = count32(x.shape()[1], "cross_entropy"),
          .smoothing = smoothing,
          .ignore_index = ignore_index};
}

// ---- cross entropy: outputs loss and log-sum-exp per row
std::vector<Tensor> cross_entropy_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& o = std::any_cast<const CrossEntropyOptions&>(attrs);
  const Tensor logits = contiguous(inputs[0]), target = contiguous(inputs[1]);
  const int64_t rows = logits.shape()[0];
  Tensor loss = empty_on(logits, {rows}, DType::f32), lse = empty_on(logits, {rows}, DType::f32);
  launch("cross_entropy", {in(logits), in(target), out(loss), out(lse)},
         class_loss_params(logits, o.label_smoothing, o.ignore_index),
         {.threads = {count32(rows, "cross_entropy"), 1, 1}});
  return {std::move(loss), std::move(lse)};
}

std::vector<Tensor> cross_entropy_vjp(Record& r, std::span<Tensor> dys) {
  const auto& o = r.attributes<CrossEntropyOptions>();
  const Tensor logits = contiguous(r.input(0)), target = contiguous(r.input(1)),
               dloss = contiguous(dys[0]);
  Tensor dlogits = empty_on(logits, logits.shape(), logits.dtype());
  launch("cross_entropy_grad", {in(logits), in(target), in(r.output(1)), in(dloss), out(dlogits)},
         class_loss_params(logits, o.label_smoothing, o.ignore_index),
         {.threads = {flat_threads(logits.numel()), 1, 1}});
  return {std::move(dlogits), Tensor()};
}

// The gradient of row i is dy_i (mass_i softmax(x_i) - target_i), so that of x is g by softmax's
// derivative, times `scale`: dy and the mass.
void give_class_gradients(SecondOrder& s, const Tensor& scale) {
  const Tensor g = wide(s.g()),
               ones = full(scale.shape(), 1, DType::f32, scale.device().shared_from_this());
  if (s.needs_dy()) s.give_dy(sum(g * wide(s.again(0, {}, {ones})), {1}));
  if (!s.needs_input(0)) return;
  const Tensor p = softmax(wide(s.input(0)));
  s.give_input(0, unsqueeze(scale, 1) * p * (g - sum(p * g, {1}, true)));
}

void cross_entropy_second(SecondOrder& s) {
  const int ignored = s.attributes<CrossEntropyOptions>().ignore_index;
  const Tensor dloss = s.dy();
  const auto is_ignored = equal(s.input(1), full({}, static_cast<float>(ignored), DType::i32,
                                                 dloss.device().shared_from_this()));
  give_class_gradients(s, masked_fill(dloss, is_ignored, 0));
}

const Op cross_entropy_op = {.name = "cross_entropy",
                             .forward = cross_entropy_forward,
                             .vjp = cross_entropy_vjp,
                             .saves = saves_always<3, 2>,
                             .second = cross_entropy_second};

// ---- nll: [rows, cols] and target [rows]
struct NllAttrs {
  int ignore_index;
};

kernels::ClassLossParams nll_params(const Shape& x, const NllAttrs& a) {
  return {.offset = {},
          .rows = count32(x[0], "nll_loss"),
          .cols = count32(x[1], "nll_loss"),
          .ignore_index = a.ignore_index};
}

std::vector<Tensor> nll_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const Tensor x = contiguous(inputs[0]), target = contiguous(inputs[1]);
  const auto p = nll_params(x.shape(), std::any_cast<const NllAttrs&>(attrs));
  Tensor loss = empty_on(x, target.shape(), DType::f32);
  launch("nll_loss", {in(x), in(target), out(loss)}, p, {.threads = {p.rows, 1, 1}});
  return one(std::move(loss));
}

std::vector<Tensor> nll_vjp(Record& r, std::span<Tensor> dys) {
  const Tensor target = contiguous(r.input(1)), dloss = contiguous(std::exchange(dys[0], {}));
  Tensor dx = empty_on(dloss, r.inputs[0].shape, r.inputs[0].dtype);
  launch("nll_loss_grad", {in(target), in(dloss), out(dx)},
         nll_params(dx.shape(), r.attributes<NllAttrs>()),
         {.threads = {flat_threads(dx.numel()), 1, 1}});
  return {std::move(dx), Tensor()};
}

const Op nll_op = {.name = "nll_loss",
                   .forward = nll_forward,
                   .vjp = nll_vjp,
                   .saves = saves_always<2>,
                   .second = linear_second};

// ---- soft cross entropy: outputs loss, log-sum-exp and mass of the target per row
struct SoftAttrs {
  float smoothing;
  int ignore_index;
};

// The optional third input, or a tensor that no kernel reads.
Tensor class_weight(const Tensor& like, const Tensor* weight) {
  return weight ? contiguous(*weight) : empty_on(like, {1}, DType::f32);
}

std::vector<Tensor> soft_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const SoftAttrs&>(attrs);
  const Tensor x = contiguous(inputs[0]), target = contiguous(inputs[1]);
  const bool weighted = inputs.size() > 2;
  const Tensor weight = class_weight(x, weighted ? &inputs[2] : nullptr);
  std::vector<Tensor> outputs;
  for (int i = 0; i < 3; ++i) outputs.push_back(empty_on(x, {x.shape()[0]}, DType::f32));
  const auto p = class_loss_params(x, a.smoothing, a.ignore_index);
  launch("soft_cross_entropy",
         {in(x), in(target), in(weight), out(outputs[0]), out(outputs[1]), out(outputs[2])}, p,
         {.threads = {p.rows, 1, 1}, .variant = {weighted}});
  return outputs;
}

std::vector<Tensor> soft_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<SoftAttrs>();
  const Tensor x = contiguous(r.input(0)), target = contiguous(r.input(1)),
               dloss = contiguous(std::exchange(dys[0], {}));
  const bool weighted = r.inputs.size() > 2;
  const Tensor weight = class_weight(x, weighted ? &r.input(2) : nullptr);
  std::vector<Tensor> gradients(r.inputs.size());
  gradients[0] = empty_on(x, x.shape(), x.dtype());
  launch("soft_cross_entropy_grad",
         {in(x), in(target), in(weight), in(r.output(1)), in(r.output(2)), in(dloss),
          out(gradients[0])},
         class_loss_params(x, a.smoothing, a.ignore_index),
         {.threads = {flat_threads(x.numel()), 1, 1}, .variant = {weighted}});
  return gradients;
}

// The mass is a constant: it is that of targets and weights.
void soft_second(SecondOrder& s) {
  give_class_gradients(s, s.dy() * s.output(2).detach());
}

const Op soft_op = {.name = "cross_entropy_weighted",
                    .forward = soft_forward,
                    .vjp = soft_vjp,
                    .saves = saves_always<7, 6>,
                    .second = soft_second};

// ---- what they share
void check_weight(const char* op, const Tensor& weight, int64_t classes) {
  if (!weight) return;
  check<DTypeError>(weight.dtype() == DType::f32, op, "the weight must be f32, got {}", weight);
  check<ShapeError>(weight.shape() == Shape{classes}, op, "the weight must be [{}], got {}",
                    classes, weight);
  check<AutogradError>(!weight.requires_grad(), op, "the weight gets no gradient; detach() it");
}

// Kernels begin with the first class.
void check_any_class(const char* op, const Tensor& x) {
  check<ShapeError>(x.size(-1) > 0, op, "there must be a class, got {}", x);
}

void check_classes(const char* op, const Tensor& x, const Tensor& target) {
  check_float(x, op);
  check<ShapeError>(x.rank() == target.rank() + 1 &&
                        target.shape() == Shape(std::span(x.shape().begin(), x.shape().end() - 1)),
                    op, "needs [..., C] and a target [...], got {} and {}", x, target);
  check_any_class(op, x);
  check<DTypeError>(target.dtype() == DType::i32, op, "the target must be i32, got {}", target);
}

// The weights of the targets' classes, 0 where ignored, NaN where outside.
Tensor weights_of(const Tensor& target, const Tensor& weight, int ignore_index) {
  const NoGrad guard;
  const auto device = target.device().shared_from_this();
  const Tensor found = reshape(embedding(reshape(weight, {-1, 1}), target), target.shape());
  return where(equal(target, full({}, static_cast<float>(ignore_index), DType::i32, device)),
               full({}, 0, DType::f32, device), found);
}

// The divisor of the weighted mean: the sum of the weights, or 1 if that is 0.
Tensor divisor(const Tensor& weights) {
  const NoGrad guard;
  const Tensor total = sum(weights);
  const auto device = total.device().shared_from_this();
  return where(equal(total, full({}, 0, DType::f32, device)), full({}, 1, DType::f32, device),
               total);
}

}  // namespace

Tensor detail::count_valid(const Tensor& target, int ignore_index) {
  const NoGrad guard;
  const Tensor ignored =
      full({}, static_cast<float>(ignore_index), DType::i32, target.device().shared_from_this());
  return clamp(sum(cast(not_equal(target, ignored), DType::f32)), 1,
               std::numeric_limits<float>::max());
}

Tensor cross_entropy(Tensor logits, Tensor target, const CrossEntropyOptions& o) {
  if (is_float(target.dtype()))
    return cross_entropy(std::move(logits), std::move(target), Tensor(), o);
  const AutocastInputs autocast("cross_entropy", {&logits}, true);
  check_float(logits, "cross_entropy");
  check<ShapeError>(logits.rank() == 2 && target.shape() == Shape{logits.shape()[0]},
                    "cross_entropy", "needs logits [N, C] and target [N], got {} and {}", logits,
                    target);
  check_any_class("cross_entropy", logits);
  check<DTypeError>(target.dtype() == DType::i32, "cross_entropy", "the target must be i32, got {}",
                    target);
  check(o.label_smoothing >= 0 && o.label_smoothing < 1, "cross_entropy",
        "label_smoothing must be in [0, 1), got {}", o.label_smoothing);
  check_indices("cross_entropy", "the target", target, logits.shape()[1] - 1, o.ignore_index);
  Tensor loss = apply1(cross_entropy_op, o, std::move(logits), target);
  if (o.reduction == Reduction::none) return loss;
  loss = sum(loss);
  if (o.reduction == Reduction::sum) return loss;
  return loss / count_valid(target, o.ignore_index);
}

Tensor nll_loss(Tensor log_probs, Tensor target, Tensor weight, int ignore_index,
                Reduction reduction) {
  const AutocastInputs autocast("nll_loss", {&log_probs}, true);
  check_classes("nll_loss", log_probs, target);
  const int64_t classes = log_probs.size(-1);
  check_weight("nll_loss", weight, classes);
  check_indices("nll_loss", "the target", target, classes - 1, ignore_index);
  const Shape shape = target.shape();
  target = reshape(std::move(target), {-1});
  log_probs = reshape(std::move(log_probs), {target.numel(), classes});
  Tensor losses = apply1(nll_op, NllAttrs{ignore_index}, std::move(log_probs), target);
  Tensor weights;
  if (weight) {
    weights = weights_of(target, weight, ignore_index);
    losses = mul(std::move(losses), weights);
  }
  if (reduction == Reduction::none) return reshape(std::move(losses), shape);
  losses = sum(std::move(losses));
  if (reduction == Reduction::sum) return losses;
  return div(std::move(losses), weight ? divisor(weights) : count_valid(target, ignore_index));
}

Tensor cross_entropy(Tensor logits, Tensor target, Tensor weight, const CrossEntropyOptions& o) {
  const bool is_soft = is_float(target.dtype());
  if (!is_soft && !weight) return cross_entropy(std::move(logits), std::move(target), o);
  const AutocastInputs autocast("cross_entropy", {&logits}, true);
  check_float(logits, "cross_entropy");
  check<ShapeError>(
      logits.rank() == 2 &&
          (is_soft ? target.shape() == logits.shape() : target.shape() == Shape{logits.size(0)}),
      "cross_entropy", "needs logits [N, C] and target [N] i32 or [N, C] float, got {} and {}",
      logits, target);
  check_any_class("cross_entropy", logits);
  check<DTypeError>(is_soft || target.dtype() == DType::i32, "cross_entropy",
                    "the target must be i32 or float, got {}", target);
  check<AutogradError>(!target.requires_grad(), "cross_entropy",
                       "the target gets no gradient; detach() it");
  check(o.label_smoothing >= 0 && o.label_smoothing < 1, "cross_entropy",
        "label_smoothing must be in [0, 1), got {}", o.label_smoothing);
  check_weight("cross_entropy", weight, logits.size(1));
  if (!is_soft)
    check_indices("cross_entropy", "the target", target, logits.size(1) - 1, o.ignore_index);
  if (logits.dtype() == DType::f32 && is_soft) target = cast(std::move(target), DType::f32);
  const auto rows = static_cast<float>(logits.size(0));
  TensorList inputs(std::move(logits), target);
  if (weight) inputs.push_back(weight);
  Tensor losses =
      apply(soft_op, SoftAttrs{o.label_smoothing, o.ignore_index}, std::move(inputs))[0];
  if (o.reduction == Reduction::none) return losses;
  losses = sum(std::move(losses));
  if (o.reduction == Reduction::sum) return losses;
  if (is_soft) return std::move(losses) / rows;
  return div(std::move(losses), divisor(weights_of(target, weight, o.ignore_index)));
}

Tensor multi_margin_loss(Tensor x, Tensor target, const MultiMarginOptions& o) {
  check(o.p == 1 || o.p == 2, "multi_margin_loss", "p must be 1 or 2, got {}", o.p);
  const AutocastInputs autocast("multi_margin_loss", {&x}, true);
  check_classes("multi_margin_loss", x, target);
  const int64_t classes = x.size(-1);
  check_weight("multi_margin_loss", o.weight, classes);
  check_indices("multi_margin_loss", "the target", target, classes - 1);
  x = cast(std::move(x), DType::f32);
  constexpr int nothing = std::numeric_limits<int>::min();  // is ignored
  Shape with_one = target.shape();
  with_one.push_back(1);
  Tensor own = reshape(nll_loss(x, target, {}, nothing, Reduction::none), with_one);
  Tensor excess = relu(affine(add(std::move(x), std::move(own)), 1, o.margin));
  if (o.p == 2) excess = square(std::move(excess));
  // The target's own term is always margin^p.
  Tensor losses = affine(sum(std::move(excess), {-1}), 1.0f / static_cast<float>(classes),
                         -std::pow(std::max(0.0f, o.margin), o.p) / static_cast<float>(classes));
  if (o.weight) losses = mul(std::move(losses), weights_of(target, o.weight, nothing));
  if (o.reduction == Reduction::none) return losses;
  return o.reduction == Reduction::sum ? sum(std::move(losses)) : mean(std::move(losses));
}

}  // namespace rw
