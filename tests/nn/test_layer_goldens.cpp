// Normalising and recurrent layers against PyTorch: outputs and every gradient.
#include <map>

#include "nn/layers.h"
#include "nn/norm.h"
#include "nn/recurrent.h"
#include "ops/autocast.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/op_table/gradcheck.h"

using namespace rw;
using namespace rw::test;

namespace {

const std::map<std::string, Values> layer_goldens = {
#include "tests/goldens/layers.inc"
};

Tensor scaled_values(const Shape& shape, int seed, float scale) {
  Values values = some_values(static_cast<int>(shape.numel()), seed);
  for (float& v : values) v *= scale;
  return tensor(values, shape);
}

Tensor seeded_leaf(const Shape& shape, int seed) {
  return scaled_values(shape, seed, 1).set_requires_grad();
}

// The parameters of make_layer_goldens.py.
std::vector<NamedTensor> set_parameters(const Module& module) {
  std::vector<NamedTensor> parameters = module.named_parameters();
  int seed = 20;
  for (NamedTensor& p : parameters) p.tensor.copy_(scaled_values(p.tensor.shape(), seed++, 0.5f));
  return parameters;
}

void check_layer_golden(const std::string& name, const Tensor& t, double tolerance) {
  const double error = largest_error(t.to_vector(), layer_goldens.at(name));
  CHECK_MESSAGE(error <= tolerance, name << " has an element that differs by " << error);
}

// Outputs, and gradients of the sum of the outputs times fixed weights.
void check_layer(const std::string& name, const std::vector<Tensor>& outputs,
                 const std::vector<Tensor>& inputs, const std::vector<NamedTensor>& parameters,
                 double tolerance) {
  Tensor loss;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Tensor& y = outputs[k];
    check_layer_golden(fmt::format("{} output {}", name, k), y, tolerance);
    const Tensor part = sum(cast(y, DType::f32) * seeded_leaf(y.shape(), 90 + static_cast<int>(k)));
    loss = loss.defined() ? loss + part : part;
  }
  loss.backward();
  for (size_t k = 0; k < inputs.size(); ++k)
    check_layer_golden(fmt::format("{} input {}", name, k), inputs[k].grad(), tolerance);
  for (const NamedTensor& p : parameters)
    check_layer_golden(name + " " + p.name, p.tensor.grad(), tolerance);
}

void check_norms(DType dtype, double tolerance) {
  const auto run = [&](const std::string& name, Module& layer, const Tensor& x) {
    const std::vector<NamedTensor> parameters = set_parameters(layer);
    check_layer(name, {layer(cast(x, dtype))}, {x}, parameters, tolerance);
  };
  LayerNorm layer_norm(24, 1e-12f);
  RMSNorm rms_norm(24);
  GroupNorm group_norm(4, 8), odd(2, 6);
  InstanceNorm2d instance_norm(8, 1e-5f, true), plain(5);
  run("layer_norm", layer_norm, seeded_leaf({6, 24}, 1));
  run("rms_norm", rms_norm, seeded_leaf({6, 24}, 2));
  run("group_norm", group_norm, seeded_leaf({2, 5, 3, 8}, 3));
  for (const int64_t channels : {8, 5}) {
    BatchNorm2d batch_norm(channels);
    const std::string name = fmt::format("batch_norm {}", channels);
    run(name, batch_norm, seeded_leaf({3, 5, 7, channels}, 8));
    check_layer_golden(name + " running mean", batch_norm.running_mean, tolerance);
    check_layer_golden(name + " running var", batch_norm.running_var, tolerance);
    batch_norm.eval();
    for (const Tensor& t : batch_norm.parameters()) t.impl().grad = {};
    run(name + " evaluated", batch_norm, seeded_leaf({2, 3, 2, channels}, 6));
  }
  run("group_norm odd", odd, seeded_leaf({2, 11, 9, 6}, 7));
  run("instance_norm", instance_norm, seeded_leaf({2, 5, 3, 8}, 5));
  run("instance_norm plain", plain, seeded_leaf({2, 4, 3, 5}, 9));
}

void check_recurrent(const std::string& name, const RecurrentOptions& options, double tolerance) {
  const Shape shape = options.batch_first ? Shape{2, 4, 3} : Shape{4, 2, 3};
  const int64_t states = options.layers * (options.bidirectional ? 2 : 1);
  {
    LSTM layer(3, 5, options);
    const std::vector<NamedTensor> parameters = set_parameters(layer);
    const Tensor x = seeded_leaf(shape, 4), h = seeded_leaf({states, 2, 5}, 5),
                 c = seeded_leaf({states, 2, 5}, 6);
    const LSTM::Result r = layer.forward(x, {h, c});
    check_layer("lstm " + name, {r.y, r.state.h, r.state.c}, {x, h, c}, parameters, tolerance);
  }
  {
    GRU layer(3, 5, options);
    const std::vector<NamedTensor> parameters = set_parameters(layer);
    const Tensor x = seeded_leaf(shape, 4), h = seeded_leaf({states, 2, 5}, 5);
    const GRU::Result r = layer.forward(x, h);
    check_layer("gru " + name, {r.y, r.h}, {x, h}, parameters, tolerance);
  }
}

void check_all_recurrent(double tolerance) {
  check_recurrent("plain", {}, tolerance);
  check_recurrent("deep", {.layers = 2, .bidirectional = true}, tolerance);
  check_recurrent("first", {.bias = false, .batch_first = true}, tolerance);
}

}  // namespace

TEST_CASE("layers: PyTorch's outputs and gradients, f32") {
  on_each_device([] {
    check_norms(DType::f32, 1e-5);
    check_all_recurrent(1e-5);
  });
}

TEST_CASE("layers: PyTorch's outputs and gradients, f16") {
  on_each_device([] {
    const Autocast autocast(DType::f16);
    check_norms(DType::f16, 2e-3);
    check_all_recurrent(5e-3);
  });
}

TEST_CASE("layer_norm: no cancellation far from zero") {
  on_each_device([] {
    constexpr int rows = 3, cols = 200;
    Values x = some_values(rows * cols);
    for (float& v : x) v += 1000;
    std::vector<double> expected;
    for (int row = 0; row < rows; ++row) {
      double mean = 0, variance = 0;
      for (int c = 0; c < cols; ++c) mean += x[row * cols + c] / double{cols};
      for (int c = 0; c < cols; ++c) variance += std::pow(x[row * cols + c] - mean, 2) / cols;
      for (int c = 0; c < cols; ++c)
        expected.push_back((x[row * cols + c] - mean) / std::sqrt(variance));
    }
    const Tensor y = layer_norm(tensor(x, {rows, cols}), {}, {}, 0);
    CHECK(largest_difference(y.to_vector(), expected) < 3e-4);  // the mean has 24 bits
  });
}
