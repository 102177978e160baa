// Normalisation of rows: layer norm and RMS norm. Statistics are f32.
#include "ops/network/layer_norm.h"

#include "core/autograd/gradient_op.h"
#include "ops/detail.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

struct NormAttrs {
  float eps;
  bool rms;  // by the root of the mean square: no mean, no bias
};

constexpr int64_t longest_row = 65536;

uint32_t layer_norm32(int64_t n) {
  return count32(n, "layer_norm");
}

// Inputs x, weight and, without rms, bias. Outputs y and stats [rows, 2].
std::vector<Tensor> norm_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const NormAttrs&>(attrs);
  const Tensor x = contiguous(inputs[0]), weight = contiguous(inputs[1]);
  const Tensor bias = a.rms ? weight : contiguous(inputs[2]);
  const int64_t cols = x.size(-1), rows = x.numel() / cols;
  Tensor y = empty_on(x, x.shape(), x.dtype()), stats = empty_on(x, {rows, 2}, DType::f32);
  launch("layer_norm", {in(x), in(weight), in(bias), out(y), out(stats)},
         kernels::LayerNormParams{
             .rows = layer_norm32(rows), .cols = layer_norm32(cols), .eps = a.eps},
         {.variant = {a.rms}});
  return {std::move(y), std::move(stats)};
}

// [2, cols] f32: sums over the rows of dy * xhat and of dy.
Tensor grad_sums(const Tensor& x, const Tensor& dy, const Tensor& stats, bool rms) {
  const int64_t cols = x.size(-1), rows = x.numel() / cols;
  if (rows == 0) return full({2, cols}, 0, DType::f32, x.device().shared_from_this());
  Tensor sums = empty_on(x, {2, cols}, DType::f32);
  launch("layer_norm_grad_stats", {in(x), in(dy), in(stats), out(sums)},
         kernels::LayerNormParams{.rows = layer_norm32(rows), .cols = layer_norm32(cols)},
         {.variant = {rms}});
  return sums;
}

std::vector<Tensor> norm_vjp(Record& r, std::span<Tensor> dys) {
  const bool rms = r.attributes<NormAttrs>().rms;
  const Tensor x = contiguous(r.input(0)), dy = contiguous(std::move(dys[0]));
  const Tensor& stats = r.output(1);
  std::vector<Tensor> grads(r.inputs.size());
  if (r.needs_grad(1) || (!rms && r.needs_grad(2))) {
    const Tensor sums = grad_sums(x, dy, stats, rms);
    grads[1] = select(sums, 0, 0);
    if (!rms) grads[2] = select(sums, 0, 1);
  }
  if (r.needs_grad(0)) {
    const Tensor weight = contiguous(r.input(1));
    const int64_t cols = x.size(-1), rows = x.numel() / cols;
    grads[0] = empty_on(x, x.shape(), x.dtype());
    launch("layer_norm_grad", {in(x), in(dy), in(weight), in(stats), out(grads[0])},
           kernels::LayerNormParams{.rows = layer_norm32(rows), .cols = layer_norm32(cols)},
           {.variant = {rms}});
  }
  return grads;
}

void norm_op_second(SecondOrder& s) {
  const auto& a = s.attributes<NormAttrs>();
  const bool has_dx = s.g(0).defined();
  const auto [x, weight, dy] = norm_second({.x = wide(s.input(0)),
                                            .weight = has_dx ? s.input(1) : Tensor(),
                                            .dy = wide(s.dy()),
                                            .g_x = has_dx ? wide(s.g(0)) : Tensor(),
                                            .g_weight = s.g(1),
                                            .g_bias = a.rms ? Tensor() : s.g(2),
                                            .axes = {-1},
                                            .eps = a.eps,
                                            .is_centred = !a.rms});
  s.give_input(0, x);
  s.give_input(1, weight);
  s.give_dy(dy);
}

// Every gradient reads x and the statistics; the gradient of x also reads the weight.
Saves norm_saves(const std::any&, uint32_t needs) {
  return {needs & 1 ? 3u : 1u, 2};
}

const Op layer_norm_op = {.name = "layer_norm",
                          .forward = norm_forward,
                          .vjp = norm_vjp,
                          .saves = norm_saves,
                          .saves_8_bits = true,
                          .second = norm_op_second};
const Op rms_norm_op = {.name = "rms_norm",
                        .forward = norm_forward,
                        .vjp = norm_vjp,
                        .saves = norm_saves,
                        .saves_8_bits = true,
                        .second = norm_op_second};

void check_row(int64_t cols, const Tensor& x, const char* op) {
  check<ShapeError>(cols > 0 && cols <= longest_row, op,
                    "a row must have 1 to {} elements, got {} in {}", longest_row, cols, x);
}

}  // namespace

Tensor detail::per_channel(const Tensor& weight, float value, const Tensor& x, const char* op) {
  const Shape shape = {x.size(-1)};
  if (!weight.defined()) return full(shape, value, DType::f32, x.device().shared_from_this());
  check<ShapeError>(weight.shape() == shape && is_float(weight.dtype()), op,
                    "weight and bias must be float [C], got {} for x {}", weight, x);
  return cast(weight, DType::f32);
}

// With h = (x - mean) r, r = 1 / deviation, and P(u) = r (u - mean(u) - h mean(u h)), which is the
// derivative of h in x and symmetric, the gradients are P(weight dy), sum(dy h) and sum(dy).
std::array<Tensor, 3> detail::norm_second(const NormSecond& n) {
  const auto average = [&](const Tensor& t) { return mean(t, n.axes, true); };
  const auto centred = [&](const Tensor& t) { return n.is_centred ? t - average(t) : t; };
  const Tensor from_mean = centred(n.x), r = rsqrt(average(square(from_mean)) + n.eps),
               h = from_mean * r;
  const auto projected = [&](const Tensor& u) { return r * (centred(u) - h * average(u * h)); };
  Tensor to_x, to_weight, to_dy;
  const auto add_to = [](Tensor& total, Tensor t) {
    total = total ? std::move(total) + std::move(t) : std::move(t);
  };
  Tensor of_h;  // the gradient of h
  if (n.g_x) {
    const Tensor along = projected(n.g_x), v = n.dy * n.weight;
    to_dy = along * n.weight;
    to_weight = sum_to(along * n.dy, n.weight.shape());
    const Tensor v_h = average(v * h), g_h = average(n.g_x * h);
    // P(v) is proportional to r, too.
    to_x = neg(square(r) * h * (average(centred(n.g_x) * v) - g_h * v_h));
    of_h = neg(r * (v_h * n.g_x + g_h * v));
  }
  if (n.g_weight) {
    add_to(to_dy, h * n.g_weight);
    add_to(of_h, n.dy * n.g_weight);
  }
  if (of_h) add_to(to_x, projected(of_h));
  if (n.g_bias) add_to(to_dy, expand(n.g_bias, n.dy.shape()));
  return {std::move(to_x), std::move(to_weight), std::move(to_dy)};
}

Tensor layer_norm(Tensor x, Tensor weight, Tensor bias, float eps) {
  const AutocastInputs autocast("layer_norm", {&x});
  check_float(x, "layer_norm");
  check_row(x.size(-1), x, "layer_norm");
  check_eps(eps, "layer_norm");
  weight = per_channel(weight, 1, x, "layer_norm");
  bias = per_channel(bias, 0, x, "layer_norm");
  return apply1(layer_norm_op, NormAttrs{eps, false}, std::move(x), std::move(weight),
                std::move(bias));
}

Tensor rms_norm(Tensor x, Tensor weight, float eps) {
  const AutocastInputs autocast("rms_norm", {&x});
  check_float(x, "rms_norm");
  check_row(x.size(-1), x, "rms_norm");
  check_eps(eps, "rms_norm");
  weight = per_channel(weight, 1, x, "rms_norm");
  return apply1(rms_norm_op, NormAttrs{eps, true}, std::move(x), std::move(weight));
}

}  // namespace rw
