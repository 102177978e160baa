// bf16: conversions, promotion, files, training without loss scaling.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/autograd/checkpoint.h"
#include "core/tensor/launch.h"
#include "io/formats/safetensors.h"
#include "models/resnet.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "ops/operators.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/temporary_folder.h"

namespace rw::test {

namespace {

// Returns every value of the type, by its bits.
Tensor every_bf16() {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  const Tensor t = empty({65536}, DType::bf16);
  write_elements(t, 0, t.numel(), bits.data());
  return t;
}

// Returns f32 values around every kind of border: random bits, and those next to ties.
std::vector<float> hard_values() {
  std::vector<float> values;
  uint32_t state = 7;
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(std::bit_cast<float>(state));
    for (const uint32_t low : {0x7fffu, 0x8000u, 0x8001u, 0u, 0xffffu})
      if (i % 40 == 0) values.push_back(std::bit_cast<float>((state & 0xffff0000u) | low));
  }
  return values;
}

// Returns the nearest value by looking at both neighbours; of two that are as near, the one with an
// even last bit. It uses doubles, which hold every f32 and bf16.
float nearest(float x) {
  if (!std::isfinite(x)) return x;
  const uint32_t below = std::bit_cast<uint32_t>(x) >> 16;
  const auto value = [](uint32_t bits) { return double{std::bit_cast<float>(bits << 16)}; };
  const double low = value(below);
  // If the next value is infinite, it stands for the value that would follow in steps as large as
  // the last.
  const double next = value(below + 1);
  const double high = std::isfinite(next) ? next : 2 * low - value(below - 1);
  const double to_low = std::abs(x - low), to_high = std::abs(high - x);
  const bool up = to_high < to_low || (to_high == to_low && below % 2 == 1);
  return static_cast<float>(up ? next : low);
}

bool is_same_float(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

struct TrainedNetwork {
  std::vector<float> losses;
  std::vector<float> weights;
};

// Makes updates of a small network on fixed data.
TrainedNetwork train_network(DType dtype, bool segments) {
  manual_seed(3);
  Sequential model;
  model.emplace<Linear>(16, 32);
  model.emplace<ReLU>();
  model.emplace<Linear>(32, 32);
  model.emplace<ReLU>();
  model.emplace<Linear>(32, 1);
  Adam adam(model.parameters(), {.lr = 3e-3f});
  const Tensor x = randn({64, 16}), y = sum(sin(x), {1}, true);
  TrainedNetwork result;
  for (int step = 0; step < 40; ++step) {
    adam.zero_grad();
    Tensor loss;
    {
      const Autocast autocast(dtype, dtype != DType::f32);
      const CheckpointScope segment(segments);
      loss = mse_loss(model(x), y);
    }
    adam.backward(loss);
    adam.step();
    result.losses.push_back(loss.item());
  }
  for (const Tensor& p : model.parameters())
    for (const float v : p.to_vector()) result.weights.push_back(v);
  return result;
}

}  // namespace

TEST_CASE("bf16: bits, names, sizes" * doctest::test_suite("host")) {
  CHECK(to_brain(1) == 0x3f80);
  CHECK(to_brain(-3) == 0xc040);
  CHECK(to_brain(1e-40f) == 0x0001);  // denormals are kept
  CHECK(to_brain(3.4e38f) == 0x7f80);
  CHECK(to_brain(INFINITY) == 0x7f80);
  CHECK(std::isnan(from_brain(to_brain(std::bit_cast<float>(0x7f800001u)))));
  CHECK(parse_dtype("bfloat16") == DType::bf16);
  CHECK(parse_dtype("bf16") == DType::bf16);
  CHECK(name(DType::bf16) == "bf16");
  CHECK(size_of(DType::bf16) == 2);
  CHECK(is_float(DType::bf16));
  for (const float x : hard_values()) REQUIRE(is_same_float(from_brain(to_brain(x)), nearest(x)));
}

TEST_CASE("bf16: a device converts as the host does, in words and one by one") {
  on_each_device([] {
    const std::vector<float> values = hard_values();
    const auto count = static_cast<int64_t>(values.size());
    const Tensor x = tensor(values, {count});
    const Tensor apart = slice(concat({x, x}, 0), 0, 1, 2 * count, 2);
    const std::vector<float> words = cast(x, DType::bf16).to_vector();
    const std::vector<float> single = cast(apart, DType::bf16).to_vector();
    for (size_t i = 0; i < values.size(); ++i) {
      // Devices may flush denormals to zero.
      if (std::abs(values[i]) < std::numeric_limits<float>::min()) continue;
      REQUIRE(is_same_float(words[i], nearest(values[i])));
      REQUIRE(is_same_float(single[i], nearest(values[(2 * i + 1) % values.size()])));
    }
    const Tensor all = every_bf16();
    const std::vector<float> wide = cast(all, DType::f32).to_vector(), host = all.to_vector();
    for (size_t i = 0; i < wide.size(); ++i)
      REQUIRE((is_same_float(wide[i], host[i]) ||
               std::abs(host[i]) < std::numeric_limits<float>::min()));
  });
}

TEST_CASE("bf16: beside other dtypes") {
  on_each_device([] {
    const Tensor b = tensor({1, 2, 300}, {3}, DType::bf16), h = tensor({1, 2, 3}, {3}, DType::f16);
    CHECK((b + h).dtype() == DType::f32);  // as in PyTorch: neither type holds the other
    CHECK((b + tensor({1, 1, 1}, {3})).dtype() == DType::f32);
    CHECK((b * 2.0f).dtype() == DType::bf16);
    CHECK((b + arange(3)).dtype() == DType::bf16);
    CHECK(cast(b, DType::f16).to_vector() == std::vector<float>{1, 2, 300});
    CHECK(cast(cast(tensor({1e10f}, {1}), DType::bf16), DType::f16).item() == INFINITY);
    CHECK(cast(h, DType::bf16).to_vector() == std::vector<float>{1, 2, 3});
    CHECK(sum(full({3, 1000}, 1, DType::bf16), {1}).to_vector() == std::vector<float>(3, 1000));
    Tensor large = nan_to_num(tensor({INFINITY}, {1}, DType::bf16));
    CHECK(large.item() == from_brain(0x7f7f));
    // A kernel sees 16-bit floats of one kind only, and the error says so.
    const Tensor y = empty({3, 3}, DType::bf16), m = zeros({3, 3}, DType::f16);
    CHECK_THROWS_AS(multiply_into(m, m, y, 1, 0), Error);
  });
}

TEST_CASE("bf16: safetensors, both ways") {
  on_each_device([] {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path / "x";
    const Tensor x = tensor({1.5f, -3, 1e30f, 0.1f}, {2, 2}), b = cast(x, DType::bf16),
                 small = cast(x / 1e27f, DType::bf16);
    write_safetensors(path, {{"b", b}, {"turned", transpose(b, 0, 1)}, {"small", small}});
    const SafetensorsFile file(path);
    CHECK(file.tensors().at("b").dtype == "BF16");
    CHECK(file.tensors().at("b").bytes == 8);
    for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
      Tensor back = empty({2, 2}, dtype);
      file.read("small", back);
      CHECK(back.to_vector() == cast(small, dtype).to_vector());
      if (dtype == DType::f16) {
        CHECK_THROWS_WITH_AS(file.read("b", back), doctest::Contains("take bf16 or f32"),
                             FileError);
        continue;
      }
      file.read("b", back);
      CHECK(back.to_vector() == cast(b, dtype).to_vector());
    }
    Tensor turned = empty({2, 2}, DType::bf16);
    file.read("turned", turned);
    CHECK(turned.to_vector() == transpose(b, 0, 1).to_vector());
    write_safetensors(path, {{"x", x}, {"h", cast(x / 1e27f, DType::f16)}}, {}, DType::bf16);
    Tensor back = empty({2, 2}, DType::bf16);
    SafetensorsFile(path).read("x", back);
    CHECK(back.to_vector() == b.to_vector());
    SafetensorsFile(path).read("h", back);
    CHECK(back.to_vector() == cast(cast(x / 1e27f, DType::f16), DType::bf16).to_vector());
  });
}

TEST_CASE("bf16: trains without loss scaling, and segments change no bit") {
  on_each_device([] {
    const TrainedNetwork wide = train_network(DType::f32, false),
                         brain = train_network(DType::bf16, false);
    CHECK(brain.losses.back() < 0.3f * brain.losses.front());
    for (size_t i = 0; i < wide.losses.size(); ++i)
      CHECK(brain.losses[i] == doctest::Approx(wide.losses[i]).epsilon(0.05));
    CHECK(brain.losses != wide.losses);
    const TrainedNetwork segments = train_network(DType::bf16, true);
    CHECK(segments.losses == brain.losses);
    CHECK(segments.weights == brain.weights);
  });
}

TEST_CASE("bf16: gradients that f16 loses") {
  on_each_device([] {
    const auto gradient = [](DType dtype) {
      const Tensor w = full({4, 4}, 0.5f).set_requires_grad(), x = full({4, 4}, 1e-3f);
      const Autocast autocast(dtype);
      const Tensor y = cast(matmul(x, w), DType::f32) * 1e-9f;
      sum(y).backward();
      return w.grad().to_vector()[0];
    };
    CHECK(gradient(DType::f16) == 0);
    CHECK(gradient(DType::bf16) == doctest::Approx(4e-12f).epsilon(0.02));
  });
}

TEST_CASE("bf16: a ResNet's gradients, by segments too") {
  on_each_device([] {
    const auto run = [](DType dtype, int blocks) {
      manual_seed(5);
      ResNet model(resnet_cifar(8));
      model.set_checkpoint(blocks);
      const Tensor x = randn({4, 8, 8, 3}), target = tensor(std::vector<int32_t>{1, 2, 3, 4}, {4});
      const Autocast autocast(dtype, dtype != DType::f32);
      cross_entropy(model(x), target).backward();
      std::vector<std::vector<float>> all;
      for (const Tensor& p : model.parameters()) all.push_back(p.grad().to_vector());
      return all;
    };
    const auto wide = run(DType::f32, 0);
    const auto brain = run(DType::bf16, 0);
    CHECK(run(DType::bf16, 1) == brain);
    double apart = 0, length = 0;
    for (size_t k = 0; k < wide.size(); ++k)
      for (size_t i = 0; i < wide[k].size(); ++i) {
        apart += std::pow(double{brain[k][i]} - wide[k][i], 2);
        length += std::pow(double{wide[k][i]}, 2);
      }
    CHECK(std::sqrt(apart / length) < 0.2);
    CHECK(apart > 0);
  });
}

}  // namespace rw::test
