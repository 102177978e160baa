// ResNet: structure against the papers and torchvision, checkpoint segments, training.
#include <doctest/doctest.h>

#include <cstdlib>
#include <numeric>

#include "core/autograd/checkpoint.h"
#include "data/images/loader.h"
#include "data/images/synthetic.h"
#include "models/resnet.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "optim/sgd.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using test::on_each_device;
using test::some_values;

namespace {

std::vector<std::string> torch_names(const ResNet& model) {
  std::vector<std::string> names;
  for (const NamedTensor& p : model.named_parameters()) names.push_back(p.name);
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// One forward and backward of a fresh model: everything it leaves behind.
struct ResNetOutcome {
  std::vector<std::vector<float>> values;  // loss, gradients, buffers
  uint64_t activations = 0;                // bytes alive between forward and backward
};

struct ResNetRun {
  int blocks = 0, stages = 0;  // of a segment
  bool outer = false;          // the whole model in one more segment
  DType dtype = DType::f32;
};

ResNetOutcome run_resnet(const ResNetConfig& config, const ResNetRun& how) {
  manual_seed(11);
  ResNet model(config);
  model.set_checkpoint(how.blocks);
  model.set_stage_checkpoint(how.stages);
  const Tensor x = tensor(some_values(2 * 16 * 16 * 3), {2, 16, 16, 3});
  const std::vector<int32_t> labels = {3, 7};
  const Tensor target = tensor(labels, {2});
  Tensor loss;
  {
    const Autocast autocast(how.dtype, how.dtype != DType::f32);
    const CheckpointScope scope(how.outer);
    loss = cross_entropy(model(x), target);
  }
  ResNetOutcome outcome;
  outcome.activations =
      default_device()->memory_report().live_by_purpose[static_cast<size_t>(Purpose::activation)];
  outcome.values.push_back(loss.to_vector());
  loss.backward();
  for (const NamedTensor& p : model.named_parameters()) {
    INFO(p.name);
    REQUIRE(p.tensor.grad().defined());
    outcome.values.push_back(p.tensor.grad().to_vector());
  }
  for (const NamedTensor& b : model.named_buffers()) outcome.values.push_back(b.tensor.to_vector());
  CHECK(Tape::current()->stats().records == 0);
  return outcome;
}

}  // namespace

TEST_CASE("resnet: parameter counts of the papers and of torchvision" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  CHECK(ResNet(resnet_cifar(20)).parameter_count() == 269722);
  CHECK(ResNet(resnet_cifar(32)).parameter_count() == 464154);
  CHECK(ResNet(resnet_cifar(56)).parameter_count() == 853018);
  CHECK(ResNet(resnet_cifar(110)).parameter_count() == 1727962);
  CHECK(ResNet(resnet_imagenet(18)).parameter_count() == 11689512);
  CHECK(ResNet(resnet_imagenet(50)).parameter_count() == 25557032);
  CHECK(resnet_imagenet(34).depths == std::vector<int>{3, 4, 6, 3});
  ResNetConfig grouped = resnet_imagenet(50);
  grouped.norm_groups = 32;
  CHECK(ResNet(grouped).parameter_count() == 25557032);
  CHECK(ResNet(grouped).named_buffers().empty());
  grouped.norm_groups = -1;
  CHECK_THROWS_AS(ResNet{grouped}, ValueError);
  CHECK(resnet_cifar(164, 2, BlockKind::bottleneck).depths == std::vector<int>{18, 18, 18});
  CHECK_THROWS_AS(resnet_cifar(21), ValueError);
  CHECK_THROWS_AS(resnet_cifar(26, 1, BlockKind::bottleneck), ValueError);
  CHECK_THROWS_AS(resnet_cifar(20, 3), ValueError);
  CHECK_THROWS_AS(resnet_imagenet(20), ValueError);
}

TEST_CASE("resnet: names as in torchvision" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const auto names = torch_names(ResNet(resnet_imagenet(18)));
  REQUIRE(names.size() == 62);
  const std::vector<std::string> first(names.begin(), names.begin() + 10);
  CHECK(first == std::vector<std::string>{
                     "conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight",
                     "layer1.0.bn1.weight", "layer1.0.bn1.bias", "layer1.0.conv2.weight",
                     "layer1.0.bn2.weight", "layer1.0.bn2.bias", "layer1.1.conv1.weight"});
  CHECK(has(names, "layer2.0.downsample.0.weight"));
  CHECK(has(names, "layer2.0.downsample.1.bias"));
  CHECK_FALSE(has(names, "layer1.0.downsample.0.weight"));
  CHECK(names[60] == "fc.weight");
  CHECK(names[61] == "fc.bias");

  ResNetConfig small = resnet_imagenet(50);
  small.depths = {1, 1, 1, 1};
  small.widths = {4, 8, 8, 8};
  const auto bottleneck = torch_names(ResNet(small));
  CHECK(has(bottleneck, "layer1.0.conv3.weight"));
  CHECK(has(bottleneck, "layer1.0.downsample.0.weight"));
}

TEST_CASE("resnet: every kind of block trains and evaluates") {
  on_each_device([] {
    for (const int version : {1, 2}) {
      for (const BlockKind block : {BlockKind::basic, BlockKind::bottleneck}) {
        for (const int norm : {0, 1, 2}) {  // none, BatchNorm, GroupNorm
          CAPTURE(version);
          CAPTURE(norm);
          ResNetConfig config = resnet_cifar(block == BlockKind::basic ? 8 : 11, version, block);
          config.widths = {4, 8, 16};
          config.norm = norm > 0;
          config.norm_groups = norm == 2 ? 2 : 0;
          ResNet model(config);
          const Tensor x = tensor(some_values(2 * 8 * 8 * 3), {2, 8, 8, 3});
          sum(square(model(x))).backward();
          for (const NamedTensor& p : model.named_parameters()) CHECK(p.tensor.grad().defined());
          model.eval();
          const NoGrad guard;
          CHECK(model(x).shape() == Shape{2, 10});
        }
      }
    }
    ResNet imagenet([] {
      ResNetConfig config = resnet_imagenet(18, 5);
      config.widths = {4, 8, 8, 8};
      return config;
    }());
    CHECK(imagenet(tensor(some_values(2 * 32 * 32 * 3), {2, 32, 32, 3})).shape() == Shape{2, 5});
    CHECK_THROWS_AS(imagenet(zeros({2, 3, 32, 32})), ShapeError);
  });
}

TEST_CASE("resnet: with zero_init_residual a block is its shortcut") {
  on_each_device([] {
    for (const bool pre_activation : {false, true}) {
      ResNetConfig config;
      config.zero_init_residual = true;
      config.pre_activation = pre_activation;
      ResidualBlock block(4, 4, 1, config);
      const Tensor x = relu(tensor(some_values(2 * 4 * 4 * 4), {2, 4, 4, 4}));
      CHECK(block(x).to_vector() == x.to_vector());

      // A padded shortcut takes every second pixel and puts zero channels around.
      ResidualBlock down(2, 4, 2, config);
      const Tensor image = relu(tensor(some_values(2 * 4 * 4 * 2), {2, 4, 4, 2}));
      const auto y = down(image).to_vector();
      if (pre_activation) continue;  // there the shortcut is normalised first
      const auto values = image.to_vector();
      CHECK(y[0] == 0);
      CHECK(y[1] == values[0]);
      CHECK(y[2] == values[1]);
      CHECK(y[3] == 0);
      CHECK(y[5] == values[4]);  // column 2
    }
  });
}

TEST_CASE("resnet: checkpoint segments keep less and change no bit") {
  on_each_device([] {
    const ResNetConfig config = resnet_cifar(20);
    for (const DType dtype : {DType::f32, DType::f16}) {
      CAPTURE(name(dtype));
      const ResNetOutcome plain = run_resnet(config, {.dtype = dtype});
      const std::vector<ResNetRun> ways = {{.blocks = 1, .dtype = dtype},
                                           {.blocks = 2, .dtype = dtype},
                                           {.stages = 1, .dtype = dtype},
                                           {.blocks = 1, .outer = true, .dtype = dtype}};
      for (size_t i = 0; i < ways.size(); ++i) {
        CAPTURE(i);
        const ResNetOutcome segments = run_resnet(config, ways[i]);
        CHECK(segments.values == plain.values);
        CHECK(segments.activations < plain.activations / 2);
      }
    }
  });
}

TEST_CASE("resnet: version 2 with checkpoint segments changes no bit") {
  on_each_device([] {
    const ResNetConfig config = resnet_cifar(20, 2);
    const ResNetOutcome plain = run_resnet(config, {});
    CHECK(run_resnet(config, {.blocks = 1}).values == plain.values);
    CHECK(run_resnet(config, {.stages = 1}).values == plain.values);
  });
}

TEST_CASE("resnet: REWIND_RECOMPUTE=1 turns block segments on" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  CHECK(ResNet(resnet_cifar(8)).layers_per_segment() == 0);
  setenv("REWIND_RECOMPUTE", "1", 1);
  CHECK(ResNet(resnet_cifar(8)).layers_per_segment() == 1);
  unsetenv("REWIND_RECOMPUTE");
}

TEST_CASE("resnet: learns ten images by heart" * doctest::test_suite("programs")) {
  set_default_device(open_backend("cpu"));
  manual_seed(1);
  ResNetConfig config = resnet_cifar(8);
  config.widths = {8, 16, 32};
  ResNet model(config);
  model.set_stage_checkpoint(1);
  SGD sgd(model.parameters(), {.lr = 0.1f, .momentum = 0.9f});

  const ImageDataset shapes = draw_shapes(10, 1);
  Loader loader(shapes, {.batch_size = 10, .mean = {0.5f, 0.5f, 0.5f}, .std = {0.3f, 0.3f, 0.3f}});
  const Batch batch = loader.batch(0, 0);
  const Tensor x = tensor(batch.pixels, {10, 32, 32, 3}), target = tensor(batch.labels, {10});
  float first = 0, last = 0;
  for (int step = 0; step < 15; ++step) {
    const Tensor loss = cross_entropy(model(x), target);
    sgd.zero_grad();
    sgd.backward(loss);
    sgd.step();
    last = loss.item();
    if (step == 0) first = last;
  }
  CHECK(first > 1.8f);
  CHECK(last < 1.0f);
}
