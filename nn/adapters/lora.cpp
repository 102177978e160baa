#include "nn/adapters/lora.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "nn/init.h"
#include "ops/autocast.h"
#include "ops/layout/indexing.h"
#include "ops/operators.h"

namespace rw {

namespace {

// Squares of whole matrices would take as much memory as these.
constexpr int64_t elements_at_once = 1 << 20;

bool is_head(const std::string& name) {
  constexpr const char* heads[] = {"lm_head", "head", "classifier", "score", "fc"};
  const std::string last = name.substr(name.rfind('.') + 1);
  return std::ranges::find(heads, last) != std::end(heads);
}

// The last parts of the names, each once, for messages.
std::string last_parts(const std::vector<NamedLinear>& layers) {
  std::set<std::string> parts;
  for (const NamedLinear& l : layers) parts.insert(l.name.substr(l.name.rfind('.') + 1));
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

Tensor sum_of_squares(Tensor rows) {
  rows = cast(std::move(rows), DType::f32);
  return sum(rows * rows, {1});
}

}  // namespace

bool names_layer(const std::string& target, const std::string& layer) {
  return layer == target || layer.ends_with("." + target);
}

double LoraOptions::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

LoraOptions LoraOptions::of_layer(const std::string& name) const {
  LoraOptions own = *this;
  const auto take = [&](auto& value, auto& pattern) {
    const auto found =
        std::ranges::find_if(pattern, [&](const auto& p) { return names_layer(p.first, name); });
    if (found != pattern.end()) value = found->second;
    pattern.clear();
  };
  take(own.rank, own.rank_pattern);
  take(own.alpha, own.alpha_pattern);
  return own;
}

void LoraOptions::check() const {
  const auto check_rank = [](int64_t r) {
    rw::check(r > 0, "lora", "the rank must be positive, got {}", r);
  };
  const auto check_alpha = [](double a) {
    rw::check(a > 0 && std::isfinite(a), "lora", "alpha must be positive, got {}", a);
  };
  check_rank(rank);
  check_alpha(alpha);
  for (const auto& [name, r] : rank_pattern) check_rank(r);
  for (const auto& [name, a] : alpha_pattern) check_alpha(a);
  rw::check(dropout >= 0 && dropout < 1, "lora", "dropout must be in [0, 1), got {}", dropout);
}

Lora::Lora(Linear& layer, const LoraOptions& options)
    : options_(options), layer_(layer), dropout_(options.dropout) {
  A = register_parameter("lora_A.weight", {options.rank, layer.in_features()});
  B = register_parameter("lora_B.weight", {layer.out_features(), options.rank});
  if (options.dora) magnitude = register_parameter("lora_magnitude_vector", {layer.out_features()});
  register_module("", dropout_);
  init::uniform_by_fan_in_(A, {});
  init::zeros_(B);
}

Lora& Lora::add_to(Linear& layer, const LoraOptions& options) {
  options.check();
  check(!dynamic_cast<Lora*>(layer.substitute()), "lora",
        "the layer has an adapter; merge or remove it first");
  auto made = std::unique_ptr<Lora>(new Lora(layer, options));
  Lora& adapter = *made;
  adapter.base_ = layer.substitute(std::move(made));
  if (adapter.base_) adapter.register_module("", *adapter.base_);
  if (options.dora) {
    const NoGrad guard;
    const DType dtype = adapter.base_ ? DType::f32 : layer.weight.dtype();
    adapter.magnitude.copy_(adapter.row_lengths(dtype));
  }
  return adapter;
}

void Lora::remove_from(Linear& layer) {
  auto* adapter = dynamic_cast<Lora*>(layer.substitute());
  check(adapter != nullptr, "lora", "the layer must have an adapter to remove, got none");
  if (adapter->base_) adapter->unregister_module(*adapter->base_);
  layer.substitute(std::move(adapter->base_));
}

Tensor Lora::product(Tensor x) const {
  if (!base_) return linear(std::move(x), layer_.weight);
  Tensor y = (*base_)(std::move(x));
  return layer_.bias ? y - cast(layer_.bias, y.dtype()) : y;
}

// The scale belongs to the narrow value.
Tensor Lora::low_rank(const Tensor& x) const {
  Tensor narrow = linear(x, Autocast::as(A, x.dtype()));
  narrow = affine(std::move(narrow), static_cast<float>(options_.scale()), 0);
  const DType dtype = narrow.dtype();
  return linear(std::move(narrow), Autocast::as(B, dtype));
}

Tensor Lora::forward(Tensor x) {
  x = Autocast::input(std::move(x));  // once for all products
  if (magnitude) return with_lengths(std::move(x));
  Tensor y = base_ ? (*base_)(x) : linear(x, layer_.weight, layer_.bias);
  Tensor more = cast(low_rank(dropout_(std::move(x))), y.dtype());
  return add(std::move(y), std::move(more));
}

// The factor of the lengths is near 1, which 16 bits hold badly: what it exceeds 1 by is a term of
// its own. As in PEFT, dropout also counts in the base's share of that term.
Tensor Lora::with_lengths(Tensor x) {
  const Tensor lengths = row_lengths(x.dtype());
  Tensor excess = (magnitude - lengths) / lengths;
  Tensor y, sum;
  if (is_training() && options_.dropout > 0) {
    const Tensor dropped = dropout_(x);
    Tensor more = low_rank(dropped);
    y = product(std::move(x));
    more = cast(std::move(more), y.dtype());
    y = add(std::move(y), more);
    sum = add(product(dropped), std::move(more));
  } else {
    Tensor more = low_rank(x);
    y = product(std::move(x));
    more = cast(std::move(more), y.dtype());
    y = sum = add(std::move(y), std::move(more));
  }
  const DType dtype = y.dtype();
  y = add(std::move(y), mul(std::move(sum), cast(std::move(excess), dtype)));
  return layer_.bias ? add(std::move(y), cast(layer_.bias, dtype)) : y;
}

// The rows of a base that is no plain weight are what it makes of unit vectors, some at a time.
Tensor Lora::row_squares(DType dtype) const {
  const int64_t in = layer_.in_features(), out = layer_.out_features();
  if (base_) {
    Tensor total = zeros({out});
    const int64_t most = std::max<int64_t>(1, elements_at_once / std::max(in, out));
    for (int64_t first = 0; first < in; first += most) {
      const int64_t count = std::min(most, in - first);
      Tensor units = pad(eye(count), {0, first}, {0, in - first - count});
      Tensor columns = product(cast(std::move(units), dtype));
      total = total + sum_of_squares(transpose(std::move(columns), 0, 1));
    }
    return total;
  }
  std::vector<Tensor> parts;
  for (Tensor& rows : split(layer_.weight, std::max<int64_t>(1, elements_at_once / in), 0))
    parts.push_back(sum_of_squares(std::move(rows)));
  return concat(parts, 0);
}

// |W + scale B A| by rows, without that matrix: |W|^2 + 2 scale B (A W^T) + scale^2 B (A A^T) B^T.
Tensor Lora::row_lengths(DType dtype) const {
  const NoGrad guard;
  const NoAutocast exact;
  const std::lock_guard lock(squares_mutex_);
  std::pair<const void*, uint32_t> contents = {base_.get(), 0};
  if (!base_) {
    const Storage& storage = *layer_.weight.impl().storage;
    contents = {&storage, storage.version()};
    dtype = layer_.weight.dtype();
  }
  if (!squares_ || squares_of_ != contents) {
    const PurposeScope purpose(Purpose::parameter);
    squares_ = row_squares(dtype);
    squares_of_ = contents;
  }
  const auto scale = static_cast<float>(options_.scale());
  const Tensor a = cast(A, DType::f32), b = cast(B, DType::f32);
  Tensor cross = transpose(cast(product(cast(A, dtype)), DType::f32), 0, 1);
  Tensor own = matmul(b, matmul(a, transpose(a, 0, 1)));
  Tensor more = sum(b * (2 * scale * std::move(cross) + scale * scale * std::move(own)), {1});
  constexpr float tiny = 1e-30f;  // rows of zeros
  return sqrt(clamp(squares_ + std::move(more), tiny, INFINITY));
}

Tensor Lora::merged_weight() const {
  check(!base_, "lora", "the adapter must stand around a plain weight, got one in another form");
  const NoGrad guard;
  const NoAutocast exact;
  const Tensor a = cast(A, DType::f32), b = cast(B, DType::f32);
  Tensor weight =
      cast(layer_.weight, DType::f32) + matmul(b, a) * static_cast<float>(options_.scale());
  if (!magnitude) return weight;
  const Tensor factor = cast(magnitude, DType::f32) / row_lengths(layer_.weight.dtype());
  return std::move(weight) * unsqueeze(factor, 1);
}

std::vector<NamedLinear> linear_layers(const Module& model) {
  std::vector<NamedLinear> found;
  for (const auto& [name, module] : model.named_modules())
    if (auto* layer = dynamic_cast<Linear*>(module)) found.push_back({name, layer});
  return found;
}

std::vector<NamedLinear> lora_targets(const Module& model,
                                      const std::vector<std::string>& target_modules) {
  std::vector<NamedLinear> layers = linear_layers(model);
  std::erase_if(layers, [&](const NamedLinear& l) {
    if (target_modules.empty()) return is_head(l.name);
    return std::ranges::none_of(target_modules,
                                [&](const std::string& t) { return names_layer(t, l.name); });
  });
  return layers;
}

std::vector<NamedLora> add_lora(Module& model, const LoraOptions& options) {
  options.check();
  check(lora_adapters(model).empty(), "add_lora",
        "the model must have no adapters yet; merge or remove them first");
  for (const std::string& target : options.target_modules)
    check(!lora_targets(model, {target}).empty(), "add_lora",
          "a target must be the last part of a linear layer's name, got '{}'; layers are: {}",
          target, last_parts(linear_layers(model)));
  const std::vector<NamedLinear> targets = lora_targets(model, options.target_modules);
  check(!targets.empty(), "add_lora", "the model must have linear layers besides its head");
  model.requires_grad_(false);
  std::vector<NamedLora> added;
  for (const auto& [name, layer] : targets)
    added.push_back({name, &Lora::add_to(*layer, options.of_layer(name))});
  model.named_parameters();  // writes the names of the new ones
  return added;
}

std::vector<NamedLora> lora_adapters(const Module& model) {
  std::vector<NamedLora> found;
  for (const auto& [name, module] : model.named_modules())
    if (auto* adapter = dynamic_cast<Lora*>(module)) found.push_back({name, adapter});
  return found;
}

void merge_lora(Module& model) {
  const std::vector<NamedLora> adapters = lora_adapters(model);
  check(!adapters.empty(), "merge_lora", "the model must have adapters, got none");
  for (const auto& [name, adapter] : adapters)
    check(!adapter->base(), "merge_lora",
          "'{}' has its weight in another form, as a quantised one, which takes no sum; load the "
          "model with plain weights (f32, f16 or bf16) and the adapter, and merge them there",
          name);
  for (const auto& [name, adapter] : adapters) {
    Linear& layer = adapter->layer();
    layer.weight.copy_(adapter->merged_weight());
    Lora::remove_from(layer);
  }
}

void remove_lora(Module& model) {
  for (const auto& [name, adapter] : lora_adapters(model)) Lora::remove_from(adapter->layer());
}

}  // namespace rw
