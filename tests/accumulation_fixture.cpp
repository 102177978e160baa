#include "tests/accumulation_fixture.h"

#include <fmt/ranges.h>

#include <numeric>

#include "optim/adafactor.h"
#include "optim/adagrad.h"
#include "optim/adam.h"
#include "optim/adam8bit.h"
#include "optim/lamb.h"
#include "optim/lion.h"
#include "optim/muon.h"
#include "optim/rmsprop.h"
#include "optim/sgd.h"

namespace rw::test {

namespace {

using Groups = std::vector<ParameterGroup>;

template <class Make>
OptimizerMaker maker(const char* name, Make make, bool is_smooth = true) {
  using O = decltype(make(Groups{}));
  return {name, [=](Groups g) { return std::make_unique<O>(make(std::move(g))); },
          [=](Groups g, uint32_t n) { return std::make_unique<Accumulate>(make(std::move(g)), n); },
          is_smooth};
}

// Matrices apart from the rest.
Muon make_muon(const Groups& groups) {
  Groups matrices, others;
  for (const ParameterGroup& group : groups) {
    ParameterGroup two = group, one = group;
    two.parameters.clear();
    one.parameters.clear();
    for (const Tensor& p : group.parameters) (p.rank() == 2 ? two : one).parameters.push_back(p);
    matrices.push_back(two);
    others.push_back(one);
  }
  return Muon(matrices, {.lr = 0.01f}, others);
}

}  // namespace

const std::vector<OptimizerMaker>& optimizer_makers() {
  static const std::vector<OptimizerMaker> all = {
      maker("sgd", [](Groups g) { return SGD(std::move(g), {.lr = 0.05f}); }),
      maker("sgd, all",
            [](Groups g) {
              return SGD(std::move(g),
                         {.lr = 0.05f, .momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true});
            }),
      maker("adam", [](Groups g) { return Adam(std::move(g), {.lr = 1e-3f, .eps = 1e-2f}); }),
      maker("adamw",
            [](Groups g) {
              return AdamW(std::move(g), {.lr = 1e-3f, .eps = 1e-2f, .weight_decay = 0.1f});
            }),
      maker("amsgrad",
            [](Groups g) {
              return Adam(std::move(g), {.lr = 1e-3f, .eps = 1e-2f, .amsgrad = true});
            }),
      maker("lamb", [](Groups g) { return Lamb(std::move(g), {.lr = 1e-3f, .eps = 1e-2f}); }),
      maker("rmsprop",
            [](Groups g) {
              return RMSprop(std::move(g), {.lr = 1e-3f, .eps = 1e-2f, .momentum = 0.5f});
            }),
      maker("adagrad",
            [](Groups g) {
              return Adagrad(std::move(g), {.lr = 1e-3f, .initial_accumulator_value = 0.1f});
            }),
      maker(
          "adafactor", [](Groups g) { return Adafactor(std::move(g)); }, false),
      maker("muon", make_muon, false),
      maker(
          "adam, 8 bits", [](Groups g) { return Adam8bit(std::move(g), {.lr = 1e-3f}); }, false),
      maker("adamw, states in host memory",
            [](Groups g) {
              return AdamW(offload_states(std::move(g), {.part_bytes = 512}), {.eps = 1e-2f});
            }),
      maker(
          "lion", [](Groups g) { return Lion(std::move(g), {.lr = 1e-3f}); }, false),
  };
  return all;
}

size_t RandomProblem::add(DataRandom& random, const Shape& shape, float scale) {
  Values values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(random.uniform(-scale, scale));
  Tensor p = tensor(values, shape).set_requires_grad();
  p.impl().name = fmt::format("p{}", parameters.size());
  parameters.push_back(p);
  return parameters.size() - 1;
}

void RandomProblem::add_layer(DataRandom& random, int64_t in, int64_t out) {
  Layer layer{};
  layer.weight = add(random, {out, in}, 2 / std::sqrt(static_cast<float>(in)));
  layer.bias = add(random, {out}, 0.5f);
  if (out > 2 && random.below(3) == 0) layer.norm = add(random, {out}, 1);
  layer.activation = static_cast<int>(random.below(5));
  layers_.push_back(layer);
  if (in == out && random.below(2) == 0) layers_.push_back(layer);  // once more, tied
}

RandomProblem::RandomProblem(uint64_t seed) : seed_(seed) {
  DataRandom random(seed);
  const int64_t features = between(random, 1, 9);
  int64_t width = features;
  for (int64_t depth = between(random, 1, 4); depth > 0; --depth) {
    const int64_t next = random.below(3) == 0 ? width : between(random, 1, 17);
    add_layer(random, width, next);
    width = next;
  }
  if (random.below(3) == 0) rare_ = add(random, {between(random, 1, 5)}, 1);
  has_unused_ = random.below(3) == 0;
  if (has_unused_) add(random, {between(random, 1, 4), 3}, 1);
  has_groups_ = random.below(2) == 0;
  Values x, y;
  for (int64_t i = 0; i < samples * features; ++i) x.push_back(random.uniform(-0.5f, 1));
  for (int64_t i = 0; i < samples * width; ++i) y.push_back(random.uniform(2, 3));
  x_ = tensor(x, {samples, features});
  y_ = tensor(y, {samples, width});
}

Tensor RandomProblem::loss(int64_t begin, int64_t end) const {
  Tensor h = slice(x_, 0, begin, end);
  for (const Layer& layer : layers_) {
    h = linear(std::move(h), parameters[layer.weight], parameters[layer.bias]);
    if (layer.norm > 0) h = layer_norm(std::move(h), parameters[layer.norm]);
    switch (layer.activation) {
      case 0:
        h = relu(std::move(h));
        break;
      case 1:
        h = tanh(std::move(h));
        break;
      case 2:
        h = gelu(std::move(h));
        break;
      case 3:
        h = silu(std::move(h));
        break;
      default:
        h = sigmoid(std::move(h));
    }
  }
  const Tensor all = mse_loss(std::move(h), slice(y_, 0, begin, end));
  constexpr int64_t rare = 8;  // the first samples
  if (!rare_ || begin >= rare) return all;
  const auto share =
      static_cast<float>(std::min(rare, end) - begin) / static_cast<float>(end - begin);
  return all + share * sum(square(parameters[*rare_]));
}

std::vector<ParameterGroup> RandomProblem::groups() const {
  if (!has_groups_) return one_group(parameters);
  ParameterGroup first{.lr_scale = 0.5f}, second{.weight_decay = 0.1f};
  for (size_t i = 0; i < parameters.size(); ++i)
    (i % 3 == 0 ? first : second).parameters.push_back(parameters[i]);
  if (second.parameters.empty()) return {first};
  return {first, second};
}

Values RandomProblem::values() const {
  Values all;
  for (const Tensor& p : parameters)
    for (const float v : p.to_vector()) all.push_back(v);
  return all;
}

std::string RandomProblem::str() const {
  std::string text = fmt::format("problem {}: {} -> {}", seed_, x_.shape().str(), y_.shape().str());
  for (const Layer& layer : layers_)
    text += fmt::format("; weight p{} {}, activation {}{}", layer.weight,
                        parameters[layer.weight].shape().str(), layer.activation,
                        layer.norm > 0 ? ", norm" : "");
  return text + (rare_ ? "; a rare parameter" : "") + (has_unused_ ? "; an unused one" : "") +
         (has_groups_ ? "; two groups" : "");
}

Window Window::random(DataRandom& random, int64_t total, int64_t count) {
  Window window;
  for (; count > 1; --count) {
    window.sizes.push_back(between(random, 1, total - count + 1));
    total -= window.sizes.back();
  }
  window.sizes.push_back(total);
  return window;
}

Window Window::exact(DataRandom& random, int64_t count) {
  const int64_t first = int64_t{1} << random.below(4);
  if (count == 1) return {{first}};
  int64_t total = first;
  while (total - first < count - 1) total *= 2;
  if (total <= 16 && random.below(2) == 0) total *= 2;
  Window window = Window::random(random, total - first, count - 1);
  window.sizes.insert(window.sizes.begin(), first);
  return window;
}

int64_t Window::total() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

double relative_distance(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

}  // namespace rw::test
