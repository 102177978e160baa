// Normalisation of rows: layer norm and RMS norm. Statistics are f32.
#include "ops/network/layer_norm.h"

#include "ops/detail.h"

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
         kernels::LayerNormGradStatsParams{.rows = layer_norm32(rows), .cols = layer_norm32(cols)},
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
           kernels::LayerNormGradParams{.rows = layer_norm32(rows), .cols = layer_norm32(cols)},
           {.variant = {rms}});
  }
  return grads;
}

// Every gradient reads x and the statistics; the gradient of x also reads the weight.
Saves norm_saves(const std::any&, uint32_t needs) {
  return {needs & 1 ? 3u : 1u, 2};
}

const Op layer_norm_op = {.name = "layer_norm",
                          .forward = norm_forward,
                          .vjp = norm_vjp,
                          .saves = norm_saves,
                          .saves_8_bits = true};
const Op rms_norm_op = {.name = "rms_norm",
                        .forward = norm_forward,
                        .vjp = norm_vjp,
                        .saves = norm_saves,
                        .saves_8_bits = true};

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
