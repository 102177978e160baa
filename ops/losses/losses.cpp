// Losses of pairs of tensors: one kernel computes the losses, another the gradient, from the inputs
// alone.
#include "ops/losses/losses.h"

#include <algorithm>

#include "core/autograd/gradient_op.h"
#include "ops/detail.h"
#include "ops/numeric.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

struct PairAttrs {
  uint32_t kind;  // LOSS_*
  float a, b;
};

// The optional third input as the kernels read it: it repeats along the last axes.
struct PositiveWeight {
  Tensor tensor;
  uint32_t period = 1;
};

PositiveWeight positive_weight(const Tensor& like, const Tensor* weight) {
  if (!weight) return {empty_on(like, {1}, DType::f32)};  // not read
  return {contiguous(*weight), count32(weight->numel(), "pair_loss")};
}

std::vector<Tensor> pair_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& [kind, a, b] = std::any_cast<const PairAttrs&>(attrs);
  const Tensor x = contiguous(inputs[0]), target = contiguous(inputs[1]);
  const bool weighted = inputs.size() > 2;
  const auto [weight, period] = positive_weight(x, weighted ? &inputs[2] : nullptr);
  Tensor y = empty_on(x, x.shape(), DType::f32);
  const kernels::PairLossParams p{
      .offset = {}, .n = count32(x.numel(), "pair_loss"), .period = period, .a = a, .b = b};
  launch("pair_loss", {in(x), in(target), in(weight), out(y)}, p,
         {.threads = {flat_threads(p.n), 1, 1}, .variant = {kind, weighted}});
  return one(std::move(y));
}

// The gradient of a sum or mean is one element, expanded.
bool is_one(const Tensor& t) {
  return std::all_of(t.strides().begin(), t.strides().end(), [](int64_t s) { return s == 0; });
}

std::vector<Tensor> pair_vjp(Record& r, std::span<Tensor> dys) {
  const auto& [kind, a, b] = r.attributes<PairAttrs>();
  const Tensor x = contiguous(r.input(0)), target = contiguous(r.input(1));
  const bool weighted = r.inputs.size() > 2;
  const auto [weight, period] = positive_weight(x, weighted ? &r.input(2) : nullptr);
  Tensor dy = std::exchange(dys[0], {});
  const bool one_dy = dy.numel() > 0 && is_one(dy);
  dy = one_dy ? make_view(dy, {1}, {1}, dy.impl().offset) : contiguous(dy);
  const kernels::PairLossParams p{.offset = {},
                                  .n = count32(x.numel(), "pair_loss"),
                                  .period = period,
                                  .dy_one = one_dy,
                                  .a = a,
                                  .b = b};
  std::vector<Tensor> gradients(r.inputs.size());
  for (uint32_t wrt = 0; wrt < 2; ++wrt) {
    if (!r.needs_grad(static_cast<int>(wrt))) continue;
    gradients[wrt] = empty_on(x, x.shape(), x.dtype());
    launch("pair_loss_grad", {in(x), in(target), in(weight), in(dy), out(gradients[wrt])}, p,
           {.threads = {flat_threads(p.n), 1, 1}, .variant = {kind, weighted, wrt}});
  }
  return gradients;
}

// The second derivatives of a loss in x and the target; undefined where they are 0.
struct PairCurvature {
  Tensor xx, xt, tt;
};

// The loss is share * miss^gamma * cross entropy, where miss = 1 - q is the probability of the
// other class. `by_x` and `by_t` are the derivatives of miss in x and in the target, over miss.
PairCurvature focal_curvature(float alpha, float gamma, const Tensor& x, const Tensor& t) {
  const Tensor p = sigmoid(x), q = sigmoid(neg(x)), miss = p * (1.0f - t) + q * t,
               is_sure = miss <= 0, least = masked_fill(miss, is_sure, 1);
  const auto over_miss = [&](const Tensor& y) { return masked_fill(y / least, is_sure, 0); };
  const Tensor by_x = over_miss((1.0f - 2.0f * t) * p * q), by_t = over_miss(q - p),
               by_xt = neg(over_miss(2.0f * p * q)) - by_x * by_t;
  const Tensor loss = softplus(x) - x * t, rise = p - t, size = pow(miss, gamma);
  const Tensor slope_x = gamma * by_x * loss + rise, slope_t = gamma * by_t * loss - x;
  const bool has_share = alpha >= 0;
  const Tensor share = has_share ? (2 * alpha - 1) * t + (1 - alpha) : scalar_on(x, 1, DType::f32);
  const float share_t = has_share ? 2 * alpha - 1 : 0;
  const Tensor xx = gamma * by_x * (slope_x + rise) + gamma * by_x * (q - p - by_x) * loss + p * q;
  const Tensor xt = gamma * (by_t * slope_x + by_xt * loss - by_x * x) - 1.0f;
  const Tensor tt = gamma * by_t * (slope_t - x - by_t * loss);
  return {share * size * xx, size * (share_t * slope_x + share * xt),
          size * (2 * share_t * slope_t + share * tt)};
}

PairCurvature pair_curvature(const PairAttrs& attrs, const Tensor& x, const Tensor& t,
                             const Tensor& weight) {
  const auto of_difference = [](const Tensor& bend) {
    return PairCurvature{bend, neg(bend), bend};
  };
  const auto is_near = [&] { return cast(abs(x - t) < attrs.a, DType::f32); };
  switch (attrs.kind) {
    case LOSS_MSE:
      return of_difference(scalar_on(x, 2, DType::f32));
    case LOSS_SMOOTH_L1:
      return of_difference(is_near() / attrs.a);
    case LOSS_HUBER:
      return of_difference(is_near());
    case LOSS_BCE: {
      const Tensor product = x * (1.0f - x), is_small = product < 1e-12f,
                   q = masked_fill(product, is_small, 1e-12f);
      const Tensor rise = masked_fill((x - t) * (1.0f - 2.0f * x), is_small, 0);
      return {(1.0f - rise / q) / q, neg(reciprocal(q)), {}};
    }
    case LOSS_BCE_LOGITS: {
      const Tensor p = sigmoid(x), q = sigmoid(neg(x));
      const Tensor weighed = weight ? weight * q : q,
                   mass = weight ? t * (weight - 1.0f) + 1.0f : t;
      return {weight ? p * q * mass : p * q, neg(p + weighed), {}};
    }
    case LOSS_KL: {
      const Tensor is_zero = t <= 0;
      return {{},
              scalar_on(x, -1, DType::f32),
              masked_fill(reciprocal(masked_fill(t, is_zero, 1)), is_zero, 0)};
    }
    case LOSS_KL_LOG: {
      const Tensor p = exp(t);
      return {{}, neg(p), p * (t - x + 2.0f)};
    }
    case LOSS_FOCAL:
      return focal_curvature(attrs.a, attrs.b, x, t);
    default:  // LOSS_L1
      return {};
  }
}

void pair_second(SecondOrder& s) {
  const Tensor dy = s.dy();
  const Tensor g[] = {s.g(0) ? wide(s.g(0)) : Tensor(), s.g(1) ? wide(s.g(1)) : Tensor()};
  const auto total = [](Tensor a, Tensor b) {
    return a && b ? std::move(a) + std::move(b) : a ? std::move(a) : std::move(b);
  };
  if (s.needs_dy()) {
    const Tensor ones = full(dy.shape(), 1, DType::f32, dy.device().shared_from_this());
    const auto part = [&](int i) { return g[i] ? g[i] * wide(s.again(i, {}, {ones})) : Tensor(); };
    s.give_dy(total(part(0), part(1)));
  }
  if (!s.needs_input(0) && !s.needs_input(1)) return;
  const bool is_weighted = s.of().inputs.size() > 2;
  const auto [xx, xt, tt] = pair_curvature(s.attributes<PairAttrs>(), wide(s.input(0)),
                                           wide(s.input(1)), is_weighted ? s.input(2) : Tensor());
  const auto by = [&](const Tensor& from_x, const Tensor& from_t) {
    Tensor sum =
        total(g[0] && from_x ? g[0] * from_x : Tensor(), g[1] && from_t ? g[1] * from_t : Tensor());
    return sum ? std::move(sum) * dy : Tensor();
  };
  s.give_input(0, by(xx, xt));
  s.give_input(1, by(xt, tt));
}

constexpr Op op_of_pairs(const char* name) {
  return {.name = name,
          .forward = pair_forward,
          .vjp = pair_vjp,
          .saves = saves_always<7>,
          .second = pair_second};
}

// The ops, indexed by LOSS_*, but for LOSS_KL_LOG.
const Op pair_ops[] = {op_of_pairs("mse_loss"),
                       op_of_pairs("l1_loss"),
                       op_of_pairs("smooth_l1_loss"),
                       op_of_pairs("huber_loss"),
                       op_of_pairs("binary_cross_entropy"),
                       op_of_pairs("binary_cross_entropy_with_logits"),
                       op_of_pairs("kl_div"),
                       op_of_pairs("sigmoid_focal_loss")};

const Op& pair_op(uint32_t kind) {
  return pair_ops[kind < LOSS_KL_LOG ? kind : kind - 1];
}

void check_constant(const char* op, const char* what, const Tensor& t) {
  check<AutogradError>(!t.defined() || !t.requires_grad(), op, "{} gets no gradient; detach() it",
                       what);
}

// The losses of a kind for each element; `positive` may be undefined.
Tensor pair_losses(PairAttrs attrs, Tensor x, Tensor target, const Tensor& positive = {}) {
  const char* op = pair_op(attrs.kind).name;
  const AutocastInputs autocast(op, {&x, &target}, true);
  check<DTypeError>(is_float(x.dtype()) && is_float(target.dtype()), op,
                    "needs float tensors, got {} and {}", x, target);
  promote(x, target);
  const Shape shape = broadcast(x.shape(), target.shape(), op);
  if (!(x.shape() == shape)) x = expand(std::move(x), shape);
  if (!(target.shape() == shape)) target = expand(std::move(target), shape);
  TensorList inputs(std::move(x), std::move(target));
  if (positive) {
    check<DTypeError>(positive.dtype() == DType::f32, op, "pos_weight must be f32, got {}",
                      positive);
    check_constant(op, "pos_weight", positive);
    check<ShapeError>(broadcast(positive.shape(), shape, op) == shape, op,
                      "pos_weight must broadcast to {}, got {}", shape, positive);
    // Unchanged if it repeats along the last axes, otherwise expanded to a dense tensor.
    Shape trailing;
    for (int i = std::max(0, shape.rank() - positive.rank()); i < shape.rank(); ++i)
      trailing.push_back(shape[i]);
    const bool repeats = positive.numel() == 1 || positive.shape() == trailing;
    inputs.push_back(repeats ? positive : contiguous(expand(positive, shape)));
  }
  return apply1(pair_op(attrs.kind), attrs, std::move(inputs));
}

// The losses times `weight`, which may be undefined.
Tensor weighed(Tensor losses, Tensor weight, const char* op) {
  if (!weight) return losses;
  check_constant(op, "weight", weight);
  const Shape shape = broadcast(losses.shape(), weight.shape(), op);
  check<ShapeError>(shape == losses.shape(), op, "the weight must broadcast to {}, got {}",
                    losses.shape(), weight);
  return mul(std::move(losses), std::move(weight));
}

}  // namespace

Tensor detail::reduced(Tensor losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  return reduction == Reduction::sum ? sum(std::move(losses)) : mean(std::move(losses));
}

Tensor mse_loss(Tensor x, Tensor target, Reduction reduction) {
  return reduced(pair_losses({LOSS_MSE, 0, 0}, std::move(x), std::move(target)), reduction);
}

Tensor l1_loss(Tensor x, Tensor target, Reduction reduction) {
  return reduced(pair_losses({LOSS_L1, 0, 0}, std::move(x), std::move(target)), reduction);
}

Tensor smooth_l1_loss(Tensor x, Tensor target, Reduction reduction, float beta) {
  check(beta >= 0, "smooth_l1_loss", "beta must be >= 0, got {}", beta);
  const uint32_t kind = beta == 0 ? LOSS_L1 : LOSS_SMOOTH_L1;
  return reduced(pair_losses({kind, beta, 0}, std::move(x), std::move(target)), reduction);
}

Tensor huber_loss(Tensor x, Tensor target, Reduction reduction, float delta) {
  check(delta > 0, "huber_loss", "delta must be positive, got {}", delta);
  return reduced(pair_losses({LOSS_HUBER, delta, 0}, std::move(x), std::move(target)), reduction);
}

Tensor binary_cross_entropy(Tensor x, Tensor target, Tensor weight, Reduction reduction) {
  Tensor losses = pair_losses({LOSS_BCE, 0, 0}, std::move(x), std::move(target));
  return reduced(weighed(std::move(losses), std::move(weight), "binary_cross_entropy"), reduction);
}

Tensor binary_cross_entropy_with_logits(Tensor x, Tensor target, const BceOptions& o) {
  Tensor losses =
      pair_losses({LOSS_BCE_LOGITS, 0, 0}, std::move(x), std::move(target), o.pos_weight);
  return reduced(weighed(std::move(losses), o.weight, "binary_cross_entropy_with_logits"),
                 o.reduction);
}

Tensor kl_div(Tensor x, Tensor target, const KlDivOptions& o) {
  check<ShapeError>(!o.batchmean || x.rank() > 0, "kl_div", "batchmean needs an axis, got {}", x);
  const auto batch = static_cast<float>(o.batchmean ? x.size(0) : 1);
  const uint32_t kind = o.log_target ? LOSS_KL_LOG : LOSS_KL;
  Tensor losses = pair_losses({kind, 0, 0}, std::move(x), std::move(target));
  if (o.batchmean) return sum(std::move(losses)) / batch;
  return reduced(std::move(losses), o.reduction);
}

Tensor sigmoid_focal_loss(Tensor x, Tensor target, const FocalOptions& o) {
  check(o.gamma >= 0 && o.alpha <= 1, "sigmoid_focal_loss",
        "gamma must be >= 0 and alpha at most 1, got {} and {}", o.gamma, o.alpha);
  return reduced(pair_losses({LOSS_FOCAL, o.alpha, o.gamma}, std::move(x), std::move(target)),
                 o.reduction);
}

Tensor margin_ranking_loss(Tensor a, Tensor b, Tensor target, float margin, Reduction reduction) {
  const AutocastInputs autocast("margin_ranking_loss", {&a, &b}, true);
  Tensor ahead = sub(cast(std::move(b), DType::f32), cast(std::move(a), DType::f32));
  Tensor losses =
      relu(affine(mul(std::move(ahead), cast(std::move(target), DType::f32)), 1, margin));
  return reduced(std::move(losses), reduction);
}

Tensor cosine_embedding_loss(Tensor a, Tensor b, Tensor target, float margin, Reduction reduction) {
  check<ShapeError>(a.rank() >= 1 && a.shape() == b.shape() &&
                        target.shape() == Shape(std::span(a.shape().begin(), a.shape().end() - 1)),
                    "cosine_embedding_loss",
                    "needs a and b [N, D] and target [N], got {}, {} and {}", a, b, target);
  const AutocastInputs autocast("cosine_embedding_loss", {&a, &b}, true);
  check_float(a, "cosine_embedding_loss");
  check_float(b, "cosine_embedding_loss");
  a = cast(std::move(a), DType::f32);
  b = cast(std::move(b), DType::f32);
  constexpr float eps = 1e-12f;  // PyTorch's
  Tensor norms = (sum(square(a), {-1}) + eps) * (sum(square(b), {-1}) + eps);
  const Tensor cosine = sum(mul(std::move(a), std::move(b)), {-1}) * rsqrt(std::move(norms));
  target = cast(std::move(target), DType::f32);
  const Tensor none = scalar_on(target, 0, DType::f32);
  const auto where_target = [&](float value, Tensor losses) {
    return where(equal(target, scalar_on(target, value, DType::f32)), std::move(losses), none);
  };
  return reduced(
      where_target(1, affine(cosine, -1, 1)) + where_target(-1, relu(affine(cosine, 1, -margin))),
      reduction);
}

Tensor triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative,
                           const TripletOptions& o) {
  const AutocastInputs autocast("triplet_margin_loss", {&anchor, &positive, &negative}, true);
  check(o.p >= 1, "triplet_margin_loss", "p must be >= 1, got {}", o.p);
  for (Tensor* t : {&anchor, &positive, &negative}) {
    check_float(*t, "triplet_margin_loss");
    check<ShapeError>(t->rank() >= 1, "triplet_margin_loss", "needs [..., D], got {}", *t);
    *t = cast(std::move(*t), DType::f32);
  }
  const auto distance = [&](Tensor a, Tensor b) {
    Tensor d = affine(sub(std::move(a), std::move(b)), 1, o.eps);
    if (o.p == 2) return norm(std::move(d), 2, {-1});
    d = abs(std::move(d));
    if (o.p == 1) return sum(std::move(d), {-1});
    return pow(sum(pow(std::move(d), o.p), {-1}), 1 / o.p);
  };
  Tensor far = distance(anchor, negative);
  if (o.swap) far = minimum(std::move(far), distance(positive, std::move(negative)));
  Tensor near = distance(std::move(anchor), std::move(positive));
  return reduced(relu(affine(sub(std::move(near), std::move(far)), 1, o.margin)), o.reduction);
}

}  // namespace rw
