// Modules, layers and initial values.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <thread>

#include "core/autograd/checkpoint.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/recurrent.h"
#include "nn/sequential.h"
#include "nn/transformer/attention.h"
#include "ops/autocast.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using rw::test::contains;
using rw::test::message_of;
using test::on_each_device;
using test::some_values;

namespace {

using Names = std::vector<std::string>;

Names tensor_names(const std::vector<NamedTensor>& tensors) {
  Names names;
  for (const NamedTensor& t : tensors) names.push_back(t.name);
  return names;
}

struct SmallNet : Module {
  SmallNet() {
    register_module("body", body);
    register_module("head", head);
    body.emplace<Conv2d>(3, 4, 3, Conv2dOptions{.padding = 1, .bias = false});
    body.emplace<BatchNorm2d>(4);
    body.emplace<ReLU>();
    body.emplace<GlobalAvgPool>();
  }
  Tensor forward(Tensor x) override { return head(body(std::move(x))); }

  Sequential body;
  Linear head{4, 2};
};

Tensor image(const Shape& shape, int seed = 0) {
  return tensor(some_values(static_cast<int>(shape.numel()), seed), shape);
}

struct ChannelMoments {
  std::vector<double> mean, var;  // var unbiased
};
ChannelMoments moments(const std::vector<float>& x, size_t channels) {
  ChannelMoments m{std::vector<double>(channels), std::vector<double>(channels)};
  const double n = static_cast<double>(x.size() / channels);
  for (size_t i = 0; i < x.size(); ++i) m.mean[i % channels] += x[i] / n;
  for (size_t i = 0; i < x.size(); ++i)
    m.var[i % channels] += std::pow(x[i] - m.mean[i % channels], 2) / (n - 1);
  return m;
}

}  // namespace

TEST_CASE("module: names, order and modes") {
  on_each_device([] {
    SmallNet net;
    CHECK(tensor_names(net.named_parameters()) ==
          Names{"body.0.weight", "body.1.weight", "body.1.bias", "head.weight", "head.bias"});
    CHECK(tensor_names(net.named_buffers()) == Names{"body.1.running_mean", "body.1.running_var"});
    CHECK(net.parameter_count() == 4 * 9 * 3 + 4 + 4 + 8 + 2);
    CHECK(net.head.weight.impl().name == "head.weight");
    for (const Tensor& p : net.parameters()) {
      CHECK(p.requires_grad());
      CHECK(p.dtype() == DType::f32);
      CHECK(p.impl().storage->purpose() == Purpose::parameter);
    }
    net.eval();
    CHECK_FALSE(net.body[1].is_training());
    net.train();
    CHECK(net.body[1].is_training());
    CHECK(net(image({2, 5, 5, 3})).shape() == Shape{2, 2});

    struct TwoInputs : Module {
      Tensor forward(Tensor a, const Tensor& b) { return add(std::move(a), b); }
      using Module::forward;
    } two;
    CHECK_THROWS_AS(two(image({1})), ValueError);
  });
}

TEST_CASE("init: seeds reproduce, and the spread is as stated") {
  on_each_device([] {
    const auto draw = [](uint64_t seed) {
      manual_seed(seed);
      return Conv2d(8, 16, 3).weight.to_vector();
    };
    CHECK(draw(3) == draw(3));
    CHECK(draw(3) != draw(4));

    const auto weight = empty({64, 3, 3, 32}, DType::f32);
    CHECK(init::fans(weight.shape()).in == 288);
    CHECK(init::fans(weight.shape()).out == 576);
    const auto check_spread = [&](double std, double bound) {
      double squares = 0, largest = 0;
      for (const float v : weight.to_vector()) {
        squares += double{v} * v;
        largest = std::max(largest, std::abs(double{v}));
      }
      const double n = static_cast<double>(weight.numel());
      CHECK(std::sqrt(squares / n) == doctest::Approx(std).epsilon(0.03));
      CHECK(largest <= bound);
    };
    init::kaiming_normal_(weight, init::FanMode::out);
    check_spread(std::sqrt(2.0 / 576), 1);
    init::kaiming_uniform_(weight);
    check_spread(std::sqrt(2.0 / 288), std::sqrt(6.0 / 288));
    init::xavier_normal_(weight);
    check_spread(std::sqrt(2.0 / 864), 1);
    init::xavier_uniform_(weight, init::gain(init::Nonlinearity::tanh));
    check_spread(5.0 / 3 * std::sqrt(2.0 / 864), 5.0 / 3 * std::sqrt(6.0 / 864));
    CHECK_THROWS_AS(init::fans({3}), ShapeError);
  });
}

TEST_CASE("init: nothing is drawn for values that are loaded next" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  manual_seed(5);
  const std::vector<float> expected = rand({3}).to_vector();
  manual_seed(5);
  Tensor weight = full({4, 4}, 7);
  {
    const init::SkipInit outer;
    { const init::SkipInit inner; }
    init::kaiming_normal_(weight);
    init::uniform_by_fan_in_(weight, {});
    const LayerNorm norm(2);
    CHECK(norm.weight.to_vector() == std::vector<float>{1, 1});
    bool is_active_elsewhere = true;
    std::thread([&] { is_active_elsewhere = init::SkipInit::is_active(); }).join();
    CHECK(!is_active_elsewhere);
  }
  CHECK(weight.to_vector() == std::vector<float>(16, 7));
  CHECK(rand({3}).to_vector() == expected);
}

TEST_CASE("embedding: the row of the padding gets no gradient" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const Tensor index = tensor(std::vector<int32_t>{1, 0, 2, 1, 1}, {5});
  for (const bool padded : {false, true}) {
    const Tensor table = ones({3, 2}).set_requires_grad();
    const auto padding = padded ? std::optional<int32_t>(1) : std::nullopt;
    sum(embedding(table, index, padding)).backward();
    const float of_padding = padded ? 0 : 3;
    CHECK(table.grad().to_vector() == std::vector<float>{1, 1, of_padding, of_padding, 1, 1});
  }
}

TEST_CASE("layers: constructors name the size that is wrong" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const auto complaint = [](auto make) { return message_of<ValueError>(make); };
  CHECK(complaint([] { Linear(0, 3); }) == "[Linear] in_features must be positive, got 0");
  CHECK(complaint([] { Linear(3, -1); }) == "[Linear] out_features must be positive, got -1");
  CHECK(complaint([] { Conv2d(0, 3, 3); }) == "[Conv2d] in_channels must be positive, got 0");
  CHECK(complaint([] { Conv2d(3, 0, 3); }) == "[Conv2d] out_channels must be positive, got 0");
  CHECK(complaint([] { Conv2d(3, 3, {3, 0}); }) == "[Conv2d] kernel must be positive, got 0");
  CHECK(complaint([] {
          Conv2d(3, 3, 3, {.stride = {0, 1}});
        }) == "[Conv2d] stride must be positive, got 0");
  CHECK(complaint([] { Conv2d(3, 3, 3, {.dilation = 0}); }) ==
        "[Conv2d] dilation must be positive, got 0");
  CHECK(complaint([] { Conv2d(3, 3, 3, {.groups = 0}); }) ==
        "[Conv2d] groups must be positive, got 0");
  CHECK(complaint([] {
          Conv2d(3, 3, 3, {.padding = {0, -1}});
        }) == "[Conv2d] padding must not be negative, got 0 and -1");
  CHECK(complaint([] { MaxPool2d(0); }) == "[MaxPool2d] kernel must be positive, got 0");
  CHECK(complaint([] { MaxPool2d(2, -1); }) == "[MaxPool2d] stride must be positive, got -1");
  CHECK(complaint([] {
          MaxPool2d(2, 2, 0, {1, 0});
        }) == "[MaxPool2d] dilation must be positive, got 0");
  CHECK(complaint([] {
          AvgPool2d({3, 1}, 1, {1, 1});
        }) == "[AvgPool2d] padding must be at most half the kernel, got 1x1 for a 3x1 kernel");
  CHECK(complaint([] { BatchNorm2d(0); }) == "[BatchNorm2d] channels must be positive, got 0");
  CHECK(complaint([] { Embedding(0, 3); }) == "[Embedding] rows must be positive, got 0");
  CHECK(complaint([] { Embedding(3, 0); }) == "[Embedding] dimension must be positive, got 0");
  CHECK(complaint([] { LayerNorm(0); }) == "[LayerNorm] size must be positive, got 0");
  CHECK(complaint([] { RMSNorm(0); }) == "[RMSNorm] size must be positive, got 0");
  CHECK(complaint([] { GroupNorm(0, 4); }) == "[GroupNorm] groups must be positive, got 0");
  CHECK(complaint([] { GroupNorm(2, 0); }) == "[GroupNorm] channels must be positive, got 0");
  CHECK(complaint([] { InstanceNorm2d(0); }) ==
        "[InstanceNorm2d] channels must be positive, got 0");
  CHECK(complaint([] { BertAttention(0, 1); }) == "[BertAttention] hidden must be positive, got 0");
  CHECK(complaint([] { BertLayer({.hidden = 4, .heads = 2, .intermediate = 0}); }) ==
        "[BertLayer] intermediate must be positive, got 0");
  CHECK(contains(complaint([] { LSTM(0, 3); }), "must be positive, got 0"));
}

TEST_CASE("conv2d: a bias costs no second activation, and its gradient is f32" *
          doctest::test_suite("host")) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    const auto device = set_default_device(open_backend("reference"));
    const Tensor x = full({2, 16, 16, 8}, 0.5f, dtype).set_requires_grad();
    const Tensor w = full({8, 3, 3, 8}, 0.25f, dtype).set_requires_grad();
    const Tensor bias = full({8}, 0.5f).set_requires_grad();
    const auto peak = [&](const Tensor& b) {
      const uint64_t before = device->live();
      device->take_high_water();
      const Tensor y = conv2d(x, w, b, Conv2dOptions{.padding = {1, 1}});
      CHECK(y.dtype() == dtype);
      CHECK(y.to_vector()[8 * 17] == (b.defined() ? 9.5f : 9));
      const uint64_t needed = device->take_high_water() - before;
      sum(y).backward();
      return needed;
    };
    CHECK(peak(bias) <= peak({}) + 256);
    CHECK(bias.grad().dtype() == DType::f32);
    CHECK(bias.grad().to_vector() == std::vector<float>(8, 512));
    CHECK(contains(message_of<ShapeError>([&] { conv2d(x, w, full({3}, 0)); }),
                   "[conv2d] bias must be [O], got f32 (3) and weight"));
    CHECK(conv2d(x, w, {}).shape() == Shape{2, 14, 14, 8});
  }
}

TEST_CASE("layers: shapes and values") {
  on_each_device([] {
    const Tensor x = image({2, 7, 7, 4});
    CHECK(Conv2d(4, 6, 3, {.stride = 2, .padding = 1, .groups = 2})(x).shape() ==
          Shape{2, 4, 4, 6});
    CHECK(MaxPool2d(2)(x).shape() == Shape{2, 3, 3, 4});
    CHECK(AvgPool2d(3, 2, 1)(x).shape() == Shape{2, 4, 4, 4});
    CHECK(GlobalAvgPool()(x).shape() == Shape{2, 4});
    CHECK(Flatten()(x).shape() == Shape{2, 196});
    CHECK(Conv2d(4, 6, {3, 5}, {.stride = {2, 1}, .padding = {0, 2}, .dilation = {2, 1}})(x)
              .shape() == Shape{2, 2, 7, 6});
    CHECK(MaxPool2d({2, 3})(x).shape() == Shape{2, 3, 2, 4});
    CHECK(MaxPool2d({3, 2}, {1, 2}, {1, 0}, {1, 3})(x).shape() == Shape{2, 7, 2, 4});
    CHECK(AvgPool2d({3, 1}, {2, 1}, {1, 0})(x).shape() == Shape{2, 4, 7, 4});
    CHECK(AvgPool2d(3, 1, 1)(ones({1, 3, 3, 1})).to_vector()[0] == doctest::Approx(4.0 / 9));
    CHECK(AvgPool2d(3, 1, 1, false)(ones({1, 3, 3, 1})).to_vector()[0] == 1);
    CHECK_THROWS_AS(Conv2d(4, 6, 3, {.groups = 3}), ValueError);

    Conv2d conv(4, 1, 1);
    init::zeros_(conv.weight);
    init::constant_(conv.bias, 2.5f);
    CHECK(conv(x).to_vector() == std::vector<float>(98, 2.5f));
    {
      const Autocast half(DType::f16);
      CHECK(conv(x).dtype() == DType::f16);
    }

    Embedding words(5, 3);
    const std::vector<int32_t> index = {4, 0};
    const auto table = words.weight.to_vector();
    const auto rows = words(tensor(index, {2})).to_vector();
    CHECK(rows ==
          std::vector<float>{table[12], table[13], table[14], table[0], table[1], table[2]});

    Dropout dropout(0.5f);
    const auto kept = dropout(x).to_vector(), all = x.to_vector();
    CHECK(kept != all);
    for (size_t i = 0; i < all.size(); ++i) CHECK((kept[i] == 0 || kept[i] == 2 * all[i]));
    dropout.eval();
    CHECK(dropout(x).to_vector() == all);
  });
}

TEST_CASE("batch norm: running statistics move once per forward, with and without checkpoint") {
  on_each_device([] {
    for (const bool segment : {false, true}) {
      CAPTURE(segment);
      BatchNorm2d norm(3);
      const Tensor x = image({2, 4, 4, 3});
      const ChannelMoments expected = moments(x.to_vector(), 3);
      Tensor y;
      {
        const CheckpointScope scope(segment);
        y = relu(norm(x));
      }
      sum(square(y)).backward();
      const auto mean = norm.running_mean.to_vector(), var = norm.running_var.to_vector();
      for (size_t c = 0; c < 3; ++c) {
        CHECK(mean[c] == doctest::Approx(0.1 * expected.mean[c]).epsilon(1e-4));
        CHECK(var[c] == doctest::Approx(0.9 + 0.1 * expected.var[c]).epsilon(1e-4));
      }
      CHECK(Tape::current()->stats().records == 0);

      norm.eval();
      const auto normed = norm(x).to_vector(), values = x.to_vector();
      for (size_t i = 0; i < values.size(); ++i)
        CHECK(normed[i] == doctest::Approx((values[i] - mean[i % 3]) / std::sqrt(var[i % 3] + 1e-5))
                               .epsilon(1e-3));
      CHECK(norm.running_mean.to_vector() == mean);
    }
    BatchNorm2d norm(3);
    CHECK_THROWS_AS(norm(image({1, 1, 1, 3})), ShapeError);
  });
}

TEST_CASE("sequential: checkpoint_every keeps less and gives the same gradients") {
  on_each_device([] {
    const auto run = [](size_t every) {
      manual_seed(5);
      Sequential net;
      for (int i = 0; i < 4; ++i) {
        net.emplace<Conv2d>(4, 4, 3, Conv2dOptions{.padding = 1});
        net.emplace<BatchNorm2d>(4);
        net.emplace<ReLU>();
      }
      net.checkpoint_every(every);
      const Tensor loss = sum(square(net(image({2, 6, 6, 4}))));
      const uint64_t saved = Tape::current()->stats().saved_bytes;
      loss.backward();
      std::vector<std::vector<float>> values;
      for (const Tensor& p : net.parameters()) values.push_back(p.grad().to_vector());
      for (const NamedTensor& b : net.named_buffers()) values.push_back(b.tensor.to_vector());
      return std::pair(values, saved);
    };
    const auto [plain, plain_bytes] = run(0);
    for (const size_t every : {1u, 3u, 5u, 100u}) {
      CAPTURE(every);
      const auto [values, bytes] = run(every);
      CHECK(values == plain);
      if (every >= 3) CHECK(bytes < plain_bytes);
    }
  });
}
