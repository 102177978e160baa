// Windows whose sums have 16 bits, with and without compensation.
#include <array>
#include <limits>

#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/fixtures/accumulation_fixture.h"
#include "tests/fixtures/forecast_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

struct BufferCase {
  DType dtype;
  bool compensated;
  std::string str() const {
    return std::string(name(dtype)) + (compensated ? ", compensated" : "");
  }
};
constexpr BufferCase narrow[] = {
    {DType::f16, false}, {DType::f16, true}, {DType::bf16, false}, {DType::bf16, true}};

void add_micro_batch(Optimizer& optimizer, const Tensor& w, const Values& gradient,
                     float weight = 1) {
  optimizer.backward(loss_with(w, gradient), weight);
  optimizer.step();
}

uint64_t gradient_bytes() {
  return default_device()->memory_report().live_by_purpose[static_cast<size_t>(Purpose::gradient)];
}

// Returns |sum - exact| / |exact| after n gradients of a mean and noise, both of that size, where
// the exact sum is one of f64.
double error_after(uint32_t n, const BufferCase& buffer) {
  constexpr int size = 4096;
  Tensor w = parameter(Values(size));
  Accumulate optimizer(SGD({w}, {.lr = 0}), n);
  optimizer.set_buffer(buffer.dtype, buffer.compensated);
  DataRandom random(n);
  std::vector<double> exact(size);
  for (uint32_t k = 0; k < n; ++k) {
    Values gradient;
    for (int i = 0; i < size; ++i) {
      gradient.push_back(random.normal(0.1f, 0.1f));
      exact[static_cast<size_t>(i)] += gradient.back();
    }
    add_micro_batch(optimizer, w, gradient);
  }
  const Values sum = w.grad().to_vector();  // as the update read it
  double difference = 0, all = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += (sum[i] - exact[i]) * (sum[i] - exact[i]);
    all += exact[i] * exact[i];
  }
  return std::sqrt(difference / all);
}

}  // namespace

// 1 + 2^-12 is 1 in f16, and 1 + 2^-9 is 1 in bf16.
TEST_CASE("accumulate buffer: what 16 bits lose, compensation keeps") {
  on_each_device([] {
    for (const BufferCase& buffer : narrow) {
      CAPTURE(buffer.str());
      const float small = buffer.dtype == DType::f16 ? 0x1p-12f : 0x1p-9f;
      Tensor w = parameter({0, 0, 0});
      Accumulate optimizer(SGD({w}, {.lr = 1}), 16);
      optimizer.set_buffer(buffer.dtype, buffer.compensated);
      for (int i = 0; i < 16; ++i)
        add_micro_batch(optimizer, w, {i == 0 ? 1 : small, small, static_cast<float>(i)});
      const float lost = buffer.compensated ? 15 * small : 0;
      CHECK(w.to_vector() == Values{-(1 + lost) / 16, -small, -120.0f / 16});
      CHECK(optimizer.updates() == 1);
    }
  });
}

// In f16 the sum is 1, and what rounding leaves of it has a scale, too.
TEST_CASE("accumulate buffer: a window goes on with another loss scale, and what rounding left") {
  on_each_device([] {
    for (const float scale : {4.0f, 1.0f, 1024.0f}) {
      CAPTURE(scale);
      Tensor w = parameter({0, 0}, "w"), x = parameter({0, 0}, "w");
      Accumulate first(SGD({w}, {.lr = 1}), 16), second(SGD({x}, {.lr = 1}), 16);
      for (Accumulate* optimizer : {&first, &second}) optimizer->set_buffer(DType::f16, true);
      first.set_scaler(LossScaler::fixed(16));
      second.set_scaler(LossScaler::fixed(scale));
      for (int i = 0; i < 8; ++i) add_micro_batch(first, w, {i == 0 ? 1 : 0x1p-12f, 1});
      second.load_state(first.state());
      second.restart_scaler();
      for (int i = 8; i < 16; ++i) add_micro_batch(second, x, {0x1p-12f, -1});
      CHECK(x.to_vector() == Values{-(1 + 15 * 0x1p-12f) / 16, 0});
    }
  });
}

TEST_CASE("accumulate buffer: errors against sums of f64" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  for (const uint32_t n : {4u, 32u}) {
    CAPTURE(n);
    const double root = std::sqrt(n);
    CHECK(error_after(n, {DType::f32, false}) < 2e-8 * root);
    CHECK(error_after(n, {DType::f16, false}) < 0x1.5p-13 * root);
    CHECK(error_after(n, {DType::f16, false}) > 0x1p-15);
    CHECK(error_after(n, {DType::bf16, false}) < 0x1.5p-10 * root);
    CHECK(error_after(n, {DType::bf16, false}) > 0x1p-12);
    CHECK(error_after(n, {DType::f16, true}) < 0x1p-22 * root);
    CHECK(error_after(n, {DType::bf16, true}) < 0x1p-16 * root);
  }
}

// For docs/accumulation.md: rewind_tests -tc='accumulate buffer: the table*' --no-skip
TEST_CASE("accumulate buffer: the table" * doctest::skip()) {
  set_default_device(open_backend("reference"));
  for (const uint32_t n : {4u, 16u, 64u, 256u}) {
    std::string row = fmt::format("| {} | {:.1e} |", n, error_after(n, {DType::f32, false}));
    for (const BufferCase& buffer : narrow) row += fmt::format(" {:.1e} |", error_after(n, buffer));
    fmt::print("{}\n", row);
  }
}

TEST_CASE("accumulate buffer: trainings are those of f32 sums, as far as the buffer goes") {
  on_each_device([] {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      CAPTURE(RandomProblem(seed).str());
      const auto train = [&](const BufferCase& buffer, uint32_t n) {
        const RandomProblem problem(seed);
        Accumulate optimizer(SGD(problem.groups(), {.lr = 0.05f, .momentum = 0.9f}), n);
        optimizer.set_buffer(buffer.dtype, buffer.compensated);
        for (int64_t i = 0; i < 7; ++i) {  // the last window is flushed
          optimizer.backward(problem.loss(4 * i, 4 * i + 4), static_cast<float>(1 + i % 3));
          const bool stays = n == 1 || buffer.dtype == DType::f32;
          CHECK(problem.parameters[0].grad().defined() == stays);
          optimizer.step();
          optimizer.zero_grad();
        }
        optimizer.flush();
        return problem.values();
      };
      const Values wide = train({DType::f32, false}, 3), single = train({DType::f32, false}, 1);
      for (const BufferCase& buffer : narrow) {
        CAPTURE(buffer.str());
        const double error = relative_distance(train(buffer, 3), wide);
        CHECK(error < (buffer.compensated ? 2e-5 : buffer.dtype == DType::f16 ? 1e-3 : 1e-2));
        CHECK(train(buffer, 1) == single);
      }
    }
  });
}

TEST_CASE("accumulate buffer: it goes on from inside a window bit for bit") {
  on_each_device([] {
    for (const BufferCase& buffer : narrow) {
      CAPTURE(buffer.str());
      const auto train = [&](int stop) {
        Tensor w = parameter({1, 2, 3}, "w"), v = parameter({4, 5}, "v");
        const auto made = [&] {
          auto optimizer = std::make_unique<Accumulate>(Adam({w, v}, {.lr = 0.1f}), 4);
          optimizer->set_buffer(buffer.dtype, buffer.compensated);
          return optimizer;
        };
        auto optimizer = made();
        for (int i = 0; i < 8; ++i) {
          const auto f = static_cast<float>(i);
          Tensor loss = loss_with(w, {0.1f * f, 1.0f / 3, -f});
          if (i % 3 == 1) loss = loss + loss_with(v, {f, 0.7f});
          optimizer->backward(loss, 1 + 0.3f * f);
          optimizer->step();
          if (i + 1 != stop) continue;
          const Optimizer::NamedState saved = copied(optimizer->state());
          optimizer.reset();
          optimizer = made();
          optimizer->load_state(saved);
        }
        Values all = w.to_vector();
        for (const float x : v.to_vector()) all.push_back(x);
        return all;
      };
      const Values whole = train(-1);
      for (const int stop : {1, 2, 3, 4, 6, 7}) {
        CAPTURE(stop);
        CHECK(train(stop) == whole);
      }
    }
  });
}

TEST_CASE("accumulate buffer: what other backward passes bring is not collected") {
  on_each_device([] {
    Tensor w = parameter({0}), v = parameter({0});
    Accumulate one(SGD({w}, {.lr = 1}), 2), other(SGD({v}, {.lr = 1}), 2);
    one.set_buffer(DType::f16);
    other.set_buffer(DType::bf16, true);
    for (int i = 0; i < 2; ++i) {
      one.backward(loss_with(w, {2}) + loss_with(v, {64}));
      CHECK(v.grad().item() == 64);
      one.step();
      other.zero_grad();
      other.backward(loss_with(v, {4}) + loss_with(w, {64}));
      other.step();
    }
    CHECK(w.item() == -2);
    CHECK(v.item() == -4);
    for (int i = 0; i < 2; ++i) {
      Accumulate::backward({&one, &other}, loss_with(w, {1}) + loss_with(v, {3}));
      one.step();
      other.step();
    }
    CHECK(w.item() == -3);
    CHECK(v.item() == -7);
    one.run_together([&](uint32_t i) { return MicroBatch{loss_with(w, {i ? 4.0f : 2.0f}), 1}; });
    CHECK(w.item() == -6);
  });
}

TEST_CASE("accumulate buffer: an overflow of the sum voids the window") {
  on_each_device([] {
    for (const bool compensated : {false, true}) {
      Tensor w = parameter({1});
      Accumulate optimizer(SGD({w}, {.lr = 1}), 2);
      optimizer.set_buffer(DType::f16, compensated);
      optimizer.set_scaler(LossScaler::dynamic(1024));
      for (int i = 0; i < 2; ++i) add_micro_batch(optimizer, w, {40});  // 81920 with the scale
      CHECK(w.item() == 1);
      CHECK(optimizer.skipped() == 1);
      for (int i = 0; i < 2; ++i) add_micro_batch(optimizer, w, {40});
      CHECK(w.item() == -39);
      CHECK(optimizer.loss_scale() == 512);
    }
  });
}

TEST_CASE("accumulate buffer: bytes per parameter, and dry runs predict them") {
  on_each_device([] {
    constexpr int layers = 6, width = 64;
    const uint64_t elements = layers * width * width;
    const auto train = [&](const BufferCase& buffer, const std::function<void()>& inside) {
      std::vector<Tensor> all;
      for (int i = 0; i < layers; ++i) all.push_back(zeros({width, width}).set_requires_grad());
      Accumulate optimizer(SGD(all), 3);
      optimizer.set_buffer(buffer.dtype, buffer.compensated);
      for (int i = 0; i < 7; ++i) {
        Tensor h = ones({2, width});
        for (const Tensor& w : all) h = tanh(linear(std::move(h), w));
        optimizer.backward(sum(h));
        optimizer.step();
        optimizer.zero_grad();
        if (i % 3 == 1) inside();
      }
    };
    for (const BufferCase& buffer :
         {BufferCase{DType::f32, false}, narrow[0], narrow[1], narrow[2]}) {
      CAPTURE(buffer.str());
      const uint64_t bytes = size_of(buffer.dtype) * (buffer.compensated ? 2 : 1);
      check_forecast([&] { train(buffer, [] {}); },
                     [&] { train(buffer, [&] { CHECK(gradient_bytes() == elements * bytes); }); });
    }
  });
}

TEST_CASE("accumulate buffer: mistakes are typed errors" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  Tensor w = parameter({1}, "w");
  Accumulate optimizer(SGD({w}), 2);
  CHECK_THROWS_AS(optimizer.set_buffer(DType::i32), DTypeError);
  CHECK_THROWS_AS(optimizer.set_buffer(DType::f32, true), ValueError);
  optimizer.set_buffer(DType::f16);
  using enum Accumulate::Overflow;
  CHECK_THROWS_AS(optimizer.set_overflow(voids_micro_batch), ValueError);
  optimizer.set_buffer(DType::f32);
  optimizer.set_overflow(voids_micro_batch);
  CHECK_THROWS_AS(optimizer.set_buffer(DType::bf16), ValueError);
  optimizer.set_overflow(voids_window);
  add_micro_batch(optimizer, w, {1});
  CHECK_THROWS_AS(optimizer.set_buffer(DType::f16), AutogradError);
  Tensor v = parameter({1}, "w");
  Accumulate other(SGD({v}), 2);
  other.set_buffer(DType::f16);
  CHECK_THROWS_WITH_AS(other.load_state(optimizer.state()), doctest::Contains("set_buffer()"),
                       FileError);
}
