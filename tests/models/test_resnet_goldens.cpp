// ResNet-18 and -50 against PyTorch: logits, loss, every gradient and every running statistic.
#include <doctest/doctest.h>

#include <cmath>

#include "io/models/model.h"
#include "models/resnet.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/hashed.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using test::hashed;
using test::on_each_device;

namespace {

namespace resnet_goldens {
// PyTorch's results for one tensor: its 2-norm, and elements at equal distances.
struct GoldenRow {
  std::string name;
  std::vector<int64_t> shape;
  double norm;
  std::vector<double> samples;
};
struct Golden {
  int depth, width;
  std::string images;  // name of their hash
  double loss;
  std::vector<double> logits, evaluated;
  std::vector<GoldenRow> gradients, buffers;
};
#include "tests/goldens/resnet.inc"
}  // namespace resnet_goldens

// `t` has PyTorch's layout, which the indices of the hash refer to.
void fill_view_from_hash(const std::string& name, Tensor t) {
  std::vector<float> values = hashed(name, t.numel());
  if (t.rank() > 1) {
    const double fan_in = static_cast<double>(t.numel() / t.size(0));
    const auto bound = static_cast<float>(std::sqrt(6 / fan_in));
    for (float& v : values) v *= bound;
  } else {
    const float center = name.ends_with("weight") || name.ends_with("running_var") ? 1 : 0;
    const bool weak = name.ends_with("bn2.weight") || name.ends_with("bn3.weight");
    for (float& v : values) v = (center + 0.25f * v) * (weak ? 0.25f : 1);
  }
  t.copy_(tensor(values, t.shape()));
}

// Distance of two vectors relative to the length of the second.
double relative(const std::vector<float>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double error = 0, length = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    length += expected[i] * expected[i];
  }
  return std::sqrt(error / length);
}

// The larger of two relative errors: of the norm, and of the samples' root mean square, to that of
// all elements.
double resnet_row_error(const Tensor& got, const resnet_goldens::GoldenRow& row) {
  REQUIRE(got.shape() == Shape(std::span(row.shape)));
  const std::vector<float> values = got.to_vector();
  double squares = 0;
  for (const float v : values) squares += static_cast<double>(v) * v;
  const double norm_error = std::abs(std::sqrt(squares) - row.norm) / row.norm;
  const size_t samples = row.samples.size();
  double sample_error = 0;
  for (size_t i = 0; i < samples; ++i) {
    const double difference = values[i * values.size() / samples] - row.samples[i];
    sample_error += difference * difference / static_cast<double>(samples);
  }
  const double scale = row.norm / std::sqrt(static_cast<double>(values.size()));
  return std::max(norm_error, std::sqrt(sample_error) / scale);
}

struct ResNetErrors {
  double evaluated = 0, logits = 0, loss = 0, buffers = 0;
  double gradients = 0, worst = 0;  // root mean square over the parameters, and the worst one
};

ResNetErrors compare_with_golden(const resnet_goldens::Golden& golden, DType dtype) {
  ResNetConfig config = resnet_imagenet(golden.depth, 10);
  for (int stage = 0; stage < 4; ++stage) config.widths[stage] = golden.width << stage;
  ResNet model(config);
  for (const auto& [name, view] : torch_state_dict(model)) fill_view_from_hash(name, view);
  const Tensor images = cast(tensor(hashed(golden.images, 4 * 48 * 48 * 3), {4, 48, 48, 3}), dtype);
  const std::vector<int32_t> labels = {3, 1, 4, 5};
  const Autocast autocast(dtype, dtype != DType::f32);
  ResNetErrors errors;
  {
    const NoGrad guard;
    model.eval();
    errors.evaluated = relative(model(images).to_vector(), golden.evaluated);
    model.train();
  }
  const Tensor logits = model(images);
  errors.logits = relative(logits.to_vector(), golden.logits);
  const Tensor loss = cross_entropy(logits, tensor(labels, {4}));
  errors.loss = std::abs(loss.item() - golden.loss) / golden.loss;
  const float scale = dtype == DType::f16 ? 1024 : 1;
  (loss * scale).backward();

  // Gradients in PyTorch's layout, as the model's tensors.
  const NoGrad guard;
  size_t g = 0, b = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    Tensor gradient = parameter.grad() / scale;
    if (gradient.rank() == 4) gradient = permute(gradient, {0, 3, 1, 2});
    REQUIRE(name == golden.gradients.at(g).name);
    const double error = resnet_row_error(gradient, golden.gradients[g++]);
    errors.gradients += error * error / static_cast<double>(golden.gradients.size());
    errors.worst = std::max(errors.worst, error);
  }
  CHECK(g == golden.gradients.size());
  errors.gradients = std::sqrt(errors.gradients);
  for (const auto& [name, buffer] : model.named_buffers()) {
    REQUIRE(name == golden.buffers.at(b).name);
    errors.buffers = std::max(errors.buffers, resnet_row_error(buffer, golden.buffers[b++]));
  }
  CHECK(b == golden.buffers.size());
  return errors;
}

}  // namespace

TEST_CASE("resnet goldens: f32 is PyTorch's f64 within 1e-5") {
  on_each_device([] {
    for (const resnet_goldens::Golden* golden :
         {&resnet_goldens::resnet18, &resnet_goldens::resnet50}) {
      CAPTURE(golden->depth);
      if (test::is_brief() && golden != &resnet_goldens::resnet18) continue;
      const ResNetErrors errors = compare_with_golden(*golden, DType::f32);
      CHECK(errors.evaluated < 1e-5);
      CHECK(errors.logits < 1e-5);
      CHECK(errors.loss < 1e-5);
      CHECK(errors.buffers < 1e-5);
      CHECK(errors.gradients < 1e-5);
      CHECK(errors.worst < 5e-5);  // one value that changes sides of a kink shows here
    }
  });
}

// f16 rounds activations to 11 bits, which moves some of them across the kink of a ReLU: outputs
// are off by that rounding, gradients by more.
TEST_CASE("resnet goldens: f16 is near PyTorch's f64") {
  on_each_device([] {
    // One model per device, to save time; the devices agree in f16 elsewhere.
    const resnet_goldens::Golden& golden = default_device()->info().backend == "reference"
                                               ? resnet_goldens::resnet18
                                               : resnet_goldens::resnet50;
    const ResNetErrors errors = compare_with_golden(golden, DType::f16);
    CHECK(errors.evaluated < 2e-3);
    CHECK(errors.logits < 1e-2);
    CHECK(errors.loss < 1e-3);
    CHECK(errors.buffers < 5e-3);
    CHECK(errors.gradients < 0.25);
  });
}
