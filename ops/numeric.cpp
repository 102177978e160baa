// Norms and other reductions, tests of values, and gated activations. They are composed of ops, or
// ops of their own where a composition would keep more than the gradient needs.
#include "ops/numeric.h"

#include <cmath>

#include "ops/detail.h"
#include "ops/operators.h"
#include "ops/reduce.h"

namespace rw {

using namespace detail;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// ---- reductions whose gradient reads x and the result
struct NormReduceAttrs {
  Axes axes;  // ascending
  bool keepdims;
  float p;  // of norm
};

// Gives t, a result of the reduction, the reduced axes as size 1.
Tensor with_axes(const Record& r, const Tensor& t) {
  return reshape(t, reduced_shape(r.inputs[0].shape, r.attributes<NormReduceAttrs>().axes, true));
}

// The reduced axes stay with size 1.
Tensor log_of_sum(const Tensor& x, const Axes& axes) {
  Tensor high = max(x, axes, true);
  high = masked_fill(high, logical_not(isfinite(high)), 0);  // inf - inf
  const Tensor total = sum(exp(x - high), axes, true);
  // Some drivers compute a finite log(0).
  return masked_fill(log(total) + high, total == 0, -infinity);
}

std::vector<Tensor> logsumexp_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const NormReduceAttrs&>(attrs);
  Tensor y = log_of_sum(wide(inputs[0]), a.axes);
  y = reshape(std::move(y), reduced_shape(inputs[0].shape(), a.axes, a.keepdims));
  return one(cast(std::move(y), inputs[0].dtype()).detach());
}

std::vector<Tensor> logsumexp_vjp(Record& r, std::span<Tensor> dys) {
  const Tensor dy = wide(with_axes(r, std::exchange(dys[0], {}))), x = wide(r.input(0));
  const Tensor y = is_half(r.outputs[0].dtype)
                       ? log_of_sum(x, r.attributes<NormReduceAttrs>().axes)  // not rounded
                       : with_axes(r, r.output(0));
  return one(dy * exp(x - masked_fill(y, y == -infinity, 0)));
}

// The reduced axes stay with size 1. Powers are those of quotients by the element that counts most,
// so that none of them overflows, and not all vanish (as Blue 1978 for p = 2).
Tensor length_of(const Tensor& x, const Axes& axes, float p) {
  if (p == 0) return sum(cast(x != 0, DType::f32), axes, true);
  Tensor size = abs(x);
  if (p == 1) return sum(std::move(size), axes, true);
  Tensor most = p > 0 ? max(size, axes, true) : min(size, axes, true);
  if (std::isinf(p)) return most;
  most = masked_fill(most, logical_or(most == 0, logical_not(isfinite(most))), 1);
  Tensor ratio = std::move(size) / most;
  Tensor total = sum(p == 2 ? square(std::move(ratio)) : pow(std::move(ratio), p), axes, true);
  return (p == 2 ? sqrt(std::move(total)) : pow(std::move(total), 1 / p)) * std::move(most);
}

std::vector<Tensor> vector_norm_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& [axes, keepdims, p] = std::any_cast<const NormReduceAttrs&>(attrs);
  Tensor y = length_of(wide(inputs[0]), axes, p);
  y = reshape(std::move(y), reduced_shape(inputs[0].shape(), axes, keepdims));
  return one(cast(std::move(y), inputs[0].dtype()).detach());
}

std::vector<Tensor> vector_norm_vjp(Record& r, std::span<Tensor> dys) {
  const auto& [axes, keepdims, p] = r.attributes<NormReduceAttrs>();
  const Tensor dy = wide(with_axes(r, std::exchange(dys[0], {}))), x = wide(r.input(0));
  if (p == 0) return one(x * 0.0f);
  if (p == 1) return one(dy * sign(x));
  const Tensor y = is_half(r.outputs[0].dtype) ? length_of(x, axes, p)  // not rounded
                                               : with_axes(r, r.output(0));
  if (std::isinf(p)) return one(sign(x) * shared_among(abs(x) == y, axes, dy));
  const Tensor ratio = x / masked_fill(y, y == 0, infinity);  // 0 where the norm is
  if (p == 2) return one(dy * ratio);
  return one(dy * sign(x) * masked_fill(pow(abs(ratio), p - 1), x == 0, 0));
}

const Op logsumexp_op = {.name = "logsumexp",
                         .forward = logsumexp_forward,
                         .vjp = logsumexp_vjp,
                         .saves = saves_always<1, 1>,
                         .records_vjp = true};
const Op norm_op = {.name = "norm",
                    .forward = vector_norm_forward,
                    .vjp = vector_norm_vjp,
                    .saves = saves_always<1, 1>,
                    .records_vjp = true};

// ---- gated activations
std::vector<Tensor> prelu_forward(const std::any&, std::span<Tensor> inputs) {
  const Tensor x = wide(inputs[0]);
  return one(cast(where(x > 0, x, x * wide(inputs[1])), inputs[0].dtype()));
}

std::vector<Tensor> prelu_vjp(Record& r, std::span<Tensor> dys) {
  const Tensor x = wide(r.input(0)), weight = wide(r.input(1)),
               dy = wide(std::exchange(dys[0], {}));
  const Tensor is_positive = x > 0;
  std::vector<Tensor> grads(2);
  if (r.needs_grad(0)) grads[0] = where(is_positive, dy, dy * weight);
  if (r.needs_grad(1)) grads[1] = sum_to(masked_fill(dy * x, is_positive, 0), weight.shape());
  return grads;
}

const Op prelu_op = {.name = "prelu",
                     .forward = prelu_forward,
                     .vjp = prelu_vjp,
                     .saves = saves_always<3>,
                     .records_vjp = true};

template <Tensor (*activation)(Tensor)>
std::vector<Tensor> gated_forward(const std::any&, std::span<Tensor> inputs) {
  return one(cast(activation(wide(inputs[0])) * wide(inputs[1]), inputs[0].dtype()));
}

// The gate's gradient is made in the memory of x or dy, which it is the last to read.
template <Tensor (*activation)(Tensor), uint32_t row>
std::vector<Tensor> gated_vjp(Record& r, std::span<Tensor> dys) {
  const DType dtype = dys[0].dtype();
  Tensor dy = wide(std::exchange(dys[0], {}));
  const Tensor gate = wide(r.input(0));
  std::vector<Tensor> grads(2);
  if (r.needs_grad(1)) grads[1] = cast(activation(gate) * dy, dtype);
  if (!r.needs_grad(0)) return grads;
  Tensor product = mul(std::move(dy), wide(r.take_input(1)));
  grads[0] = cast(unary_gradient(row, gate, std::move(product)), dtype);
  return grads;
}

Saves gated_saves(const std::any&, uint32_t needs) {
  return needs & 1 ? Saves{3, 0, 2} : Saves{1, 0};
}

const Op glu_op = {.name = "glu",
                   .forward = gated_forward<sigmoid>,
                   .vjp = gated_vjp<sigmoid, unary_sigmoid>,
                   .saves = gated_saves,
                   .saves_8_bits = true,
                   .records_vjp = true};
const Op swiglu_op = {.name = "swiglu",
                      .forward = gated_forward<silu>,
                      .vjp = gated_vjp<silu, unary_silu>,
                      .saves = gated_saves,
                      .saves_8_bits = true,
                      .records_vjp = true};
const Op geglu_op = {.name = "geglu",
                     .forward = gated_forward<gelu_tanh>,
                     .vjp = gated_vjp<gelu_tanh, unary_gelu_tanh>,
                     .saves = gated_saves,
                     .saves_8_bits = true,
                     .records_vjp = true};

Tensor gated(const Op& op, Tensor gate, Tensor x) {
  check_float(gate, op.name);
  promote(gate, x);
  check<ShapeError>(gate.shape() == x.shape(), op.name, "both must have one shape, got {} and {}",
                    gate, x);
  return apply1(op, {}, std::move(gate), std::move(x));
}

}  // namespace

Tensor logsumexp(Tensor x, const Axes& axes, bool keepdims) {
  const AutocastInputs autocast("logsumexp", {&x});
  check_float(x, "logsumexp");
  NormReduceAttrs attrs{reduced_axes(x, axes, "logsumexp"), keepdims, 0};
  return apply1(logsumexp_op, std::move(attrs), std::move(x));
}

Tensor norm(Tensor x, float p, const Axes& axes, bool keepdims) {
  const AutocastInputs autocast("norm", {&x});
  check_float(x, "norm");
  NormReduceAttrs attrs{reduced_axes(x, axes, "norm"), keepdims, p};
  return apply1(norm_op, std::move(attrs), std::move(x));
}

Tensor cosine_similarity(Tensor a, Tensor b, int axis, float eps) {
  const AutocastInputs autocast("cosine_similarity", {&a, &b});
  check_eps(eps, "cosine_similarity");
  promote(a, b);
  check_float(a, "cosine_similarity");
  const DType dtype = a.dtype();
  const Shape shape = broadcast(a.shape(), b.shape(), "cosine_similarity");
  axis = normalize_axis(axis, shape.rank(), "cosine_similarity");
  const auto direction = [&](Tensor t) { return normalize(expand(wide(t), shape), 2, axis, eps); };
  Tensor product = direction(std::move(a)) * direction(std::move(b));
  return cast(sum(std::move(product), {axis}), dtype);
}

Tensor normalize(Tensor x, float p, int axis, float eps) {
  check_eps(eps, "normalize");
  check_float(x, "normalize");
  const DType dtype = x.dtype();
  x = wide(std::move(x));
  Tensor length = clamp(norm(x, p, {axis}, true), eps, infinity);
  return cast(std::move(x) / std::move(length), dtype);
}

Tensor any(Tensor x, const Axes& axes, bool keepdims) {
  return max(x != 0, axes, keepdims) > 0;
}

Tensor all(Tensor x, const Axes& axes, bool keepdims) {
  return min(x != 0, axes, keepdims) > 0;
}

Tensor isinf(Tensor x) {
  if (!is_float(x.dtype())) return x != x;
  return abs(std::move(x)) == infinity;
}
Tensor isfinite(Tensor x) {
  if (!is_float(x.dtype())) return x == x;
  return abs(std::move(x)) < infinity;
}

Tensor nan_to_num(Tensor x, float nan, std::optional<float> inf,
                  std::optional<float> negative_inf) {
  check_float(x, "nan_to_num");
  const float largest = x.dtype() == DType::f16    ? 65504.0f
                        : x.dtype() == DType::bf16 ? 0x1.fep127f
                                                   : std::numeric_limits<float>::max();
  const Tensor is_nan = isnan(x), is_high = x == infinity, is_low = x == -infinity;
  x = masked_fill(std::move(x), is_high, inf.value_or(largest));
  x = masked_fill(std::move(x), is_low, negative_inf.value_or(-largest));
  return masked_fill(std::move(x), is_nan, nan);
}

Tensor prelu(Tensor x, Tensor weight) {
  const AutocastInputs autocast("prelu", {&x});
  check_float(x, "prelu");
  check<ShapeError>(
      weight.numel() == 1 || (weight.rank() == 1 && x.rank() > 0 && weight.size(0) == x.size(-1)),
      "prelu",
      "needs one weight, or one for each place of the last axis, got x {} and "
      "weight {}",
      x, weight);
  if (weight.numel() == 1) weight = reshape(std::move(weight), Shape{1});
  return apply1(prelu_op, {}, std::move(x), std::move(weight));
}

Tensor glu(Tensor x, int axis) {
  axis = normalize_axis(axis, x.rank(), "glu");
  const int64_t size = x.size(axis);
  check<ShapeError>(size % 2 == 0, "glu", "axis {} must have an even size, got {}", axis, x);
  Tensor gate = slice(x, axis, size / 2, size);
  return gated(glu_op, std::move(gate), slice(std::move(x), axis, 0, size / 2));
}

Tensor swiglu(Tensor gate, Tensor x) {
  return gated(swiglu_op, std::move(gate), std::move(x));
}

Tensor geglu(Tensor gate, Tensor x) {
  return gated(geglu_op, std::move(gate), std::move(x));
}

}  // namespace rw
