#include "nn/layers.h"

#include <algorithm>

#include "nn/init.h"
#include "ops/layout/indexing.h"
#include "ops/operators.h"
#include "ops/statistics.h"

namespace rw {

namespace {

constexpr const char* no_weight = "the weight was released: another module must stand in its place";

// These are checked here, where the faulty line is the user's, and not in the first forward.
Pool2dOptions pool_options(const char* module, Size2d kernel, Size2d stride, Size2d padding) {
  if (stride.h == 0) stride.h = kernel.h;
  if (stride.w == 0) stride.w = kernel.w;
  check_positive(
      module, {{"kernel", std::min(kernel.h, kernel.w)}, {"stride", std::min(stride.h, stride.w)}});
  check(padding.h >= 0 && padding.w >= 0 && 2 * padding.h <= kernel.h && 2 * padding.w <= kernel.w,
        module, "padding must be at most half the kernel, got {}x{} for a {}x{} kernel", padding.h,
        padding.w, kernel.h, kernel.w);
  return {kernel, stride, padding};
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool has_bias) : in_(in), out_(out) {
  check_positive("Linear", {{"in_features", in}, {"out_features", out}});
  const bool has_weight = !init::WithoutWeights::is_active();
  if (has_weight) weight = register_parameter("weight", {out, in});
  if (has_bias) bias = register_parameter("bias", {out});
  if (has_weight)
    init::uniform_by_fan_in_(weight, bias);
  else if (has_bias)
    init::zeros_(bias);
}

Tensor Linear::forward(Tensor x) {
  if (substitute_) return (*substitute_)(std::move(x));
  check(weight.defined(), "Linear", no_weight);
  return linear(std::move(x), weight, bias);
}

std::unique_ptr<Module> Linear::substitute(std::unique_ptr<Module> module) {
  check(module || weight, "Linear", no_weight);
  return exchange_part(substitute_, std::move(module));
}

void Linear::release_weight() {
  check(substitute_ != nullptr, "Linear", "a weight is released when a module stands in its place");
  unregister_parameter("weight");
  weight = {};
}

void Linear::restore_weight(DType dtype) {
  check(!weight.defined(), "Linear", "the weight must be restored only if there is none");
  weight = register_parameter("weight", {out_, in_}, dtype);
}

BatchNorm2d::BatchNorm2d(int64_t channels, float eps, float momentum)
    : eps_(eps), momentum_(momentum) {
  check_positive("BatchNorm2d", {{"channels", channels}});
  weight = register_parameter("weight", {channels});
  bias = register_parameter("bias", {channels});
  running_mean = register_buffer("running_mean", {channels}, 0);
  running_var = register_buffer("running_var", {channels}, 1);
  init::ones_(weight);
  init::zeros_(bias);
}

Tensor BatchNorm2d::forward(Tensor x) {
  if (!is_training())
    return batch_norm_with(std::move(x), running_mean, running_var, weight, bias, eps_);
  const auto joins = exchange ? exchange : StatisticsScope::current();
  check<ShapeError>(joins || x.numel() / x.size(-1) > 1, "BatchNorm2d",
                    "training needs more than one value per channel, got x {}", x);
  BatchNormResult result = batch_norm(std::move(x), weight, bias, eps_, joins);
  const RunningStatistics running{running_mean, running_var, momentum_};
  const BatchStatistics batch{result.mean, result.var, result.rows};
  joins ? joins->update(running, batch) : update_running(running, batch);
  return std::move(result.y);
}

Dropout::Dropout(float p, GeneratorRef generator) : p_(p), generator_(generator) {
  check(p >= 0 && p < 1, "Dropout", "the probability must be in [0, 1), got {}", p);
}

Tensor Dropout::forward(Tensor x) {
  if (!is_training() || p_ == 0) return x;
  return dropout(std::move(x), p_, generator_.get());
}

Embedding::Embedding(int64_t rows, int64_t dimension, const EmbeddingOptions& options)
    : options_(options), rows_(rows), dimension_(dimension) {
  check_positive("Embedding", {{"rows", rows}, {"dimension", dimension}});
  const auto padding = options.padding_index;
  check(!padding || (*padding >= 0 && *padding < rows), "Embedding",
        "the padding index must be 0 to {}, got {}", rows - 1, padding.value_or(0));
  if (init::WithoutWeights::is_active()) return;
  weight = register_parameter("weight", {rows, dimension});
  init::normal_(weight, 0, 1);
  if (padding) fill_(select(weight.detach(), 0, *padding), 0);
}

Tensor Embedding::forward(Tensor index) {
  if (substitute_) return (*substitute_)(std::move(index));
  check(weight.defined(), "Embedding", no_weight);
  if (!options_.max_norm) return embedding(weight, std::move(index), options_.padding_index);
  renormalise(index);  // again by the next call, which changes what a replay would read
  return checkpoint_keep(embedding(weight, std::move(index), options_.padding_index));
}

std::unique_ptr<Module> Embedding::substitute(std::unique_ptr<Module> module) {
  check(module || weight, "Embedding", no_weight);
  check(!module || (!options_.max_norm && !options_.padding_index), "Embedding",
        "a table with a substitute must have no options, got one with max_norm or padding_index");
  return exchange_part(substitute_, std::move(module));
}

void Embedding::release_weight() {
  check(substitute_ != nullptr, "Embedding",
        "a weight is released when a module stands in its place");
  unregister_parameter("weight");
  weight = {};
}

void Embedding::restore_weight(DType dtype) {
  check(!weight.defined(), "Embedding", "the weight must be restored only if there is none");
  weight = register_parameter("weight", {rows_, dimension_}, dtype);
}

// Side effects stay off the tape, so that replay does not see them.
void Embedding::renormalise(const Tensor& index) {
  const NoGrad guard;
  const Tensor rows = flatten(index), table = weight.detach();
  const Tensor looked_up = embedding(table, rows);
  const Tensor length = norm(looked_up, options_.norm_type, {1}, true);
  const Tensor scale = clamp(*options_.max_norm / (length + 1e-7f), 0, 1);
  weight.copy_(index_copy(table, 0, rows, looked_up * scale));
}

MaxPool2d::MaxPool2d(Size2d kernel, Size2d stride, Size2d padding, Size2d dilation)
    : options_(pool_options("MaxPool2d", kernel, stride, padding)) {
  check_positive("MaxPool2d", {{"dilation", std::min(dilation.h, dilation.w)}});
  options_.dilation = dilation;
}

AvgPool2d::AvgPool2d(Size2d kernel, Size2d stride, Size2d padding, bool count_include_pad)
    : options_(pool_options("AvgPool2d", kernel, stride, padding)) {
  options_.count_include_pad = count_include_pad;
}

}  // namespace rw
