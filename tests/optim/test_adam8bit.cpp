// Adam and AdamW with 8-bit moments: the maps, the loss by quantisation, the rule against a model
// of it in double precision (tests may not need bitsandbytes), training, memory.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/blocks/block_type.h"
#include "io/snapshot/snapshot.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "ops/losses/losses.h"
#include "optim/accumulation/accumulate.h"
#include "optim/accumulation/fused_backward.h"
#include "optim/adam8bit.h"
#include "tests/fixtures/forecast_fixture.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/fixtures/temporary_folder.h"
#include "tests/optim/pairs/plain_updates.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr int state_block = 256;

// Returns n values whose sizes reach over eight decades, different for every seed.
Values wide_values(int n, int seed) {
  Values values = some_values(n, seed);
  for (int i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] *= std::pow(10.0f, static_cast<float>(-(i * 7 + seed) % 9));
  return values;
}

Tensor named_state(const Optimizer& optimizer, const std::string& name) {
  for (const auto& [key, tensor] : optimizer.state())
    if (key == name) return tensor;
  FAIL("no state " << name);
  return {};
}

// Returns a moment of 'w', decoded.
std::vector<double> decoded(const Optimizer& optimizer, const std::string& moment) {
  const std::array<float, 256> map = dynamic_map(moment == "exp_avg");
  const std::vector<int32_t> codes = named_state(optimizer, moment + "_codes.w").to_ints();
  const Values absmax = named_state(optimizer, moment + "_absmax.w").to_vector();
  std::vector<double> values;
  for (size_t i = 0; i < codes.size(); ++i)
    values.push_back(double{map[static_cast<size_t>(codes[i])]} * absmax[i / state_block]);
  return values;
}

double nearest(double value, const std::array<float, 256>& map) {
  return *std::min_element(map.begin(), map.end(), [=](float a, float b) {
    return std::abs(a - value) < std::abs(b - value);
  });
}

// A classifier with one layer that is quantised and one that is not.
struct QuantizedNet {
  Sequential model;
  QuantizedNet() {
    manual_seed(3);
    model.emplace<Linear>(48, 96);
    model.emplace<Tanh>();
    model.emplace<Linear>(96, 5);
  }
  Tensor loss(int seed) {
    std::vector<int32_t> labels;  // where in its period a row begins
    for (int row = 0; row < 40; ++row) labels.push_back((row * 48 * 37 + seed % 7 * 53) % 101 / 21);
    return cross_entropy(model(tensor(some_values(40 * 48, seed % 7), {40, 48})),
                         tensor(labels, {40}));
  }
  template <class O>
  float train(O&& optimizer, int steps) {
    float last = 0;
    for (int t = 0; t < steps; ++t) {
      optimizer.zero_grad();
      const Tensor loss = this->loss(t);
      optimizer.backward(loss);
      optimizer.step();
      last = loss.item();
    }
    return last;
  }
  Values values() const {
    Values all;
    for (const Tensor& p : model.parameters())
      for (const float v : p.to_vector()) all.push_back(v);
    return all;
  }
};

uint64_t live_optimizer_bytes() {
  return default_device()->memory_report().live_by_purpose[static_cast<int>(Purpose::optimizer)];
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("dynamic map: the published properties") {
  for (const bool is_signed : {true, false}) {
    CAPTURE(is_signed);
    const std::array<float, 256> map = dynamic_map(is_signed);
    CHECK(std::adjacent_find(map.begin(), map.end(), std::greater_equal<>()) == map.end());
    CHECK(std::count(map.begin(), map.end(), 0.0f) == 1);
    CHECK(map.back() == 1);
    CHECK(map.front() == (is_signed ? -map[254] : 0.0f));
    // Each decade has twice as many values as the one below; within a decade they are linear.
    double unit = 1;
    for (int exponent = 0; exponent > -7; --exponent, unit /= 10) {
      std::vector<double> decade;
      for (const float v : map)
        if (v > unit / 10 && v < unit) decade.push_back(v);
      const size_t count = size_t{1} << (6 + exponent + !is_signed);
      REQUIRE(decade.size() == count);
      for (size_t k = 0; k < count; ++k)
        CHECK(decade[k] == doctest::Approx(unit * (0.1 + 0.9 * (double(k) + 0.5) / double(count))));
    }
    // Each value has its negative, except for 1.
    for (const float v : map)
      if (is_signed && v != 1) CHECK(std::count(map.begin(), map.end(), -v) == 1);
  }
  CHECK(dynamic_map(true)[127] == 0);
  CHECK(dynamic_map(true)[128] == doctest::Approx(5.5e-7));
  CHECK(dynamic_map(false)[1] == doctest::Approx(3.25e-7));
  CHECK(dynamic_map(true)[254] == doctest::Approx(0.99296875));
  const auto map = dynamic_map(true), bounds = dynamic_bounds(map);
  for (size_t i = 0; i < 255; ++i) CHECK((map[i] < bounds[i] && bounds[i] < map[i + 1]));
  CHECK(bounds[255] == std::numeric_limits<float>::infinity());
}

TEST_SUITE_END();

TEST_CASE("adam8bit: a moment is the nearest value of its block's map") {
  on_each_device([] {
    // Without memory, the moments are the gradient and its square. The last block is short.
    constexpr int n = 4096 + 77;
    Tensor w = parameter(some_values(n), "w");
    Adam8bit optimizer({w}, {.beta1 = 0, .beta2 = 0});
    Values gradient = wide_values(n, 1);
    for (int i = 512; i < 768; ++i) gradient[static_cast<size_t>(i)] = 0;
    one_step(optimizer, w, gradient);
    const std::vector<double> m = decoded(optimizer, "exp_avg"),
                              v = decoded(optimizer, "exp_avg_sq");
    const auto map_m = dynamic_map(true), map_v = dynamic_map(false);
    for (size_t begin = 0; begin < n; begin += state_block) {
      const size_t end = std::min<size_t>(n, begin + state_block);
      float most = 0;
      for (size_t i = begin; i < end; ++i) most = std::max(most, std::abs(gradient[i]));
      CHECK(named_state(optimizer, "exp_avg_absmax.w").to_vector()[begin / state_block] ==
            doctest::Approx(most));
      for (size_t i = begin; i < end; ++i) {
        const double g = gradient[i], rounding = 1e-6;
        const double best = most > 0 ? most * nearest(g / most, map_m) : 0;
        CHECK(std::abs(m[i] - g) <= std::abs(best - g) + rounding * std::abs(best));
        // The bound is half of the distance between two values of a decade: 0.9 / 64 in the
        // largest.
        CHECK(std::abs(m[i] - g) <= 0.00704 * most);
        if (std::abs(g) < 0.09 * most) CHECK(std::abs(m[i] - g) <= 0.00141 * most);
        const double most_v = double{most} * most;
        if (g == 0) CHECK(v[i] == 0);
        if (g == 0 || most_v == 0) continue;
        const double best_v = most_v * std::max(double{map_v[1]}, nearest(g * g / most_v, map_v));
        CHECK(std::abs(v[i] - g * g) <= std::abs(best_v - g * g) + rounding * (g * g + best_v));
        CHECK(v[i] > 0);
      }
    }
  });
}

TEST_CASE("adam8bit: the rule, against a model in double precision") {
  on_each_device([] {
    constexpr int n = 5000;
    for (const bool is_adamw : {false, true}) {
      CAPTURE(is_adamw);
      const AdamWOptions options{.lr = 0.01f, .weight_decay = 0.1f};
      Tensor w = parameter(some_values(n), "w");
      const Values start = w.to_vector();
      Doubles expected(start.begin(), start.end());
      const PlainUpdate plain = plain_adam(options, is_adamw, true);
      std::unique_ptr<Optimizer> optimizer;
      if (is_adamw)
        optimizer = std::make_unique<AdamW8bit>(std::vector{w}, options);
      else
        optimizer = std::make_unique<Adam8bit>(
            std::vector{w}, AdamOptions{.lr = options.lr, .weight_decay = options.weight_decay});
      for (int t = 0; t < 20; ++t) {
        const Values gradient = wide_values(n, t);
        one_step(*optimizer, w, gradient);
        plain(expected, Doubles(gradient.begin(), gradient.end()), options.lr, options.weight_decay,
              t + 1);
      }
      const Values x = w.to_vector();
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i) sum += std::abs(x[i] - expected[i]);
      // Where f32 rounds a moment to the other side of a bound, its code is the neighbour's.
      CHECK(sum / n < 2e-6);
      CHECK(largest_difference(x, expected) < options.lr / 2);
    }
  });
}

TEST_CASE("adam8bit: cpu and Vulkan agree, and so do two runs on each to the bit") {
  std::vector<Values> parameters;
  std::vector<std::vector<double>> moments;
  on_each_device([&] {
    std::vector<Values> runs;
    for (int run = 0; run < 2; ++run) {
      Tensor w = parameter(some_values(9001), "w");
      Adam8bit optimizer({w}, {.lr = 0.01f});
      for (int t = 0; t < 5; ++t) one_step(optimizer, w, wide_values(9001, t));
      runs.push_back(w.to_vector());
      if (run == 1) moments.push_back(decoded(optimizer, "exp_avg"));
    }
    CHECK(runs[0] == runs[1]);
    parameters.push_back(runs[0]);
  });
  if (parameters.size() < 2) return;
  CHECK(largest_difference(parameters[1], {parameters[0].begin(), parameters[0].end()}) < 1e-3);
  int other_codes = 0;
  for (size_t i = 0; i < moments[0].size(); ++i)
    other_codes += std::abs(moments[0][i] - moments[1][i]) > 1e-5 * std::abs(moments[0][i]);
  CHECK(other_codes < 30);  // of 9001
}

TEST_CASE("adam8bit: what stops being moved is not thrown far") {
  on_each_device([] {
    // One gradient is a million times the others, and then all are 0: the update would divide by a
    // mean of squares of 0.
    Tensor w = parameter(Values(4096, 0), "w");
    Adam8bit optimizer({w}, {.lr = 0.01f});
    Values gradient(4096, 1e-4f);
    for (size_t i = 0; i < gradient.size(); i += state_block) gradient[i] = 1;
    one_step(optimizer, w, gradient);
    for (int t = 0; t < 5; ++t) one_step(optimizer, w, Values(4096, 0));
    for (const float x : w.to_vector()) REQUIRE(std::abs(x) < 0.1f);
  });
}

TEST_CASE("adam8bit: training ends where Adam's does") {
  on_each_device([] {
    QuantizedNet eight, full, start;
    const float before = start.loss(6).item();
    const AdamOptions options{.lr = 3e-3f};
    const float loss8 = eight.train(Adam8bit(eight.model.parameters(), options), 100);
    const float loss = full.train(Adam(full.model.parameters(), options), 100);
    CHECK(before > 1);
    CHECK(loss < 0.1f);
    CHECK(loss8 < 0.1f);
    CHECK(loss8 == doctest::Approx(loss).epsilon(0.03));
    const Values a = eight.values(), b = full.values(), from = start.values();
    double moved = 0, apart = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      moved += std::abs(b[i] - from[i]);
      apart += std::abs(a[i] - b[i]);
    }
    CHECK(apart < 0.05 * moved);
    CHECK(apart > 0);
  });
}

TEST_CASE("adam8bit: fused into backward, the same bits") {
  on_each_device([] {
    QuantizedNet plain, fused;
    plain.train(AdamW8bit(plain.model.parameters()), 5);
    fused.train(FusedBackward(AdamW8bit(fused.model.parameters())), 5);
    CHECK(plain.values() == fused.values());
  });
}

TEST_CASE("adam8bit: memory is 2 bytes and 8 / 256 of a byte per element") {
  on_each_device([] {
    constexpr int64_t n = 2048 * 9, maps = 4096;
    const auto of = [&](auto make) {
      Tensor w = zeros({n}).set_requires_grad();
      const uint64_t before = live_optimizer_bytes();
      const auto optimizer = make(w);
      return live_optimizer_bytes() - before;
    };
    const uint64_t adam =
        of([](const Tensor& w) { return std::make_unique<Adam>(std::vector{w}); });
    const uint64_t eight =
        of([](const Tensor& w) { return std::make_unique<Adam8bit>(std::vector{w}); });
    CHECK(adam - (eight - maps) == 8 * n - (2 * n + 8 * n / state_block));
  });
}

TEST_CASE("adam8bit: dry runs predict its memory to the byte") {
  on_each_device([] {
    const auto program = [] {
      QuantizedNet net;
      net.train(Accumulate(AdamW8bit(net.model.parameters()), 2), 6);
    };
    check_forecast(program);
  });
}

TEST_CASE("adam8bit: a snapshot goes on to the bit") {
  on_each_device([] {
    const TemporaryFolder folder;
    QuantizedNet first, second;
    Adam8bit a(first.model.parameters()), b(second.model.parameters());
    const auto steps = [](QuantizedNet& net, Optimizer& optimizer, int from, int to) {
      for (int t = from; t < to; ++t) {
        optimizer.zero_grad();
        optimizer.backward(net.loss(t));
        optimizer.step();
      }
    };
    steps(first, a, 0, 4);
    save_snapshot(folder / "s.safetensors", {.model = first.model, .optimizer = a}, {});
    CHECK(SafetensorsFile(folder / "s.safetensors").tensors().size() > 0);
    load_snapshot(folder / "s.safetensors", {.model = second.model, .optimizer = b});
    for (size_t i = 0; i < a.state().size(); ++i)
      CHECK(read_bytes(a.state()[i].second) == read_bytes(b.state()[i].second));
    steps(first, a, 4, 8);
    steps(second, b, 4, 8);
    CHECK(first.values() == second.values());

    // The state of f32 moments differs.
    QuantizedNet third;
    Adam plain(third.model.parameters());
    CHECK_THROWS_AS(plain.load_state(a.state()), FileError);
    CHECK_THROWS_AS(a.load_state(plain.state()), FileError);
  });
}

TEST_CASE("adam8bit: 16-bit parameters follow f32 masters") {
  on_each_device([] {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const Values start = some_values(4500);
      Tensor low = tensor(start, {4500}, dtype).set_requires_grad();
      low.impl().name = "w";
      Tensor full = parameter(low.to_vector(), "w");
      AdamW8bit a({low}), b({full});
      for (int t = 0; t < 5; ++t) {
        const Values gradient = tensor(wide_values(4500, t), {4500}, dtype).to_vector();
        a.zero_grad();
        a.backward(sum(cast(low, DType::f32) * tensor(gradient, {4500})));
        a.step();
        one_step(b, full, gradient);
      }
      CHECK(named_state(a, "master.w").to_vector() == full.to_vector());
      CHECK(low.to_vector() == to_dtype(full.detach(), dtype).to_vector());
    }
  });
}

TEST_CASE("adam8bit: options are checked" * doctest::test_suite("host")) {
  const CpuDevice cpu;
  const Tensor w = leaf(10);
  CHECK_THROWS_AS(Adam8bit({w}, {.amsgrad = true}), ValueError);
  CHECK_THROWS_AS(AdamW8bit({w}, {.beta1 = 1}), ValueError);
  CHECK_THROWS_AS(AdamW8bit({w}, {.eps = 0}), ValueError);
}
