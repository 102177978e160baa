// Accumulate keeps the promise of the original AccumOptimizer, n micro-batches in one update,
// without its defects.
#include <cmath>

#include "ops/losses/losses.h"
#include "optim/accumulation/accumulate.h"
#include "optim/accumulation/adama.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// A small regression problem; rows [begin, end) of it are one micro-batch.
struct Regression {
  static constexpr int64_t rows = 24, features = 7;
  Tensor x = tensor(some_values(rows * features), {rows, features});
  Tensor y = tensor(some_values(rows, 5), {rows, 1});
  Tensor w = parameter(some_values(features, 9));

  Tensor loss(int64_t begin, int64_t end) const {
    const Tensor out = sum(slice(x, 0, begin, end) * w, {1}, true);
    return mse_loss(out, slice(y, 0, begin, end));
  }
};

double relative_difference(const Values& a, const Values& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace

TEST_CASE("accumulate: n = 1 is the plain optimizer to the bit") {
  on_each_device([] {
    const auto run = [](auto make) {
      Regression problem;
      auto optimizer = make(problem.w);
      optimizer.set_scaler(LossScaler::dynamic(1024, 2, 0.5f, 3));
      optimizer.set_schedule(Schedule::cosine(10, 2));
      optimizer.set_max_norm(0.5f);
      for (int64_t t = 0; t < 8; ++t) {
        optimizer.zero_grad();
        optimizer.backward(problem.loss(3 * t, 3 * t + 3));
        CHECK(optimizer.step());
      }
      return problem.w.to_vector();
    };
    const AdamOptions adam{.lr = 0.1f, .weight_decay = 0.1f};
    const SGDOptions sgd{.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f};
    CHECK(run([&](Tensor w) { return Accumulate(Adam({w}, adam), 1); }) ==
          run([&](Tensor w) { return Adam({w}, adam); }));
    CHECK(run([&](Tensor w) { return Accumulate(AdamW({w}), 1); }) ==
          run([&](Tensor w) { return AdamW({w}); }));
    CHECK(run([&](Tensor w) { return Accumulate(SGD({w}, sgd), 1); }) ==
          run([&](Tensor w) { return SGD({w}, sgd); }));
  });
}

TEST_CASE("accumulate: windows of one micro-batch keep no gradients for others" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  for (const uint32_t n : {1, 2}) {
    Tensor w = parameter({1});
    Accumulate optimizer(SGD({w}), n);
    optimizer.backward(loss_with(w, {1}));
    CHECK(w.impl().grad_place.defined() == (n > 1));
  }
}

TEST_CASE("accumulate: n micro-batches are one batch") {
  on_each_device([] {
    const auto run = [](auto make, int micro_batches) {
      Regression problem;
      Accumulate optimizer(make(problem.w), micro_batches);
      optimizer.set_max_norm(0.5f);
      optimizer.set_schedule(Schedule::linear(20, 2));
      const int64_t size = Regression::rows / micro_batches;
      for (int epoch = 0; epoch < 5; ++epoch)
        for (int i = 0; i < micro_batches; ++i) {
          optimizer.backward(problem.loss(i * size, (i + 1) * size));
          CHECK(optimizer.step() == (i == micro_batches - 1));
        }
      CHECK(optimizer.updates() == 5);
      return problem.w.to_vector();
    };
    const auto sgd = [](Tensor w) { return SGD({w}, {.lr = 0.1f, .momentum = 0.9f}); };
    const auto adam = [](Tensor w) { return Adam({w}, {.lr = 0.1f}); };
    const auto adamw = [](Tensor w) { return AdamW({w}, {.lr = 0.1f}); };
    for (int n : {2, 8, 24}) {
      CHECK(relative_difference(run(sgd, n), run(sgd, 1)) < 1e-6);
      CHECK(relative_difference(run(adam, n), run(adam, 1)) < 1e-6);
      CHECK(relative_difference(run(adamw, n), run(adamw, 1)) < 1e-6);
    }
  });
}

TEST_CASE("accumulate: none is dropped, and weights count samples") {
  on_each_device([] {
    Tensor w = parameter({0, 0});
    Accumulate optimizer(SGD({w}, {.lr = 1}), 3);
    const auto window = [&] {
      one_step(optimizer, w, {1, 2}, 2);
      one_step(optimizer, w, {3, 0}, 6);
      one_step(optimizer, w, {-4, 5}, 4);
    };
    window();
    CHECK(largest_difference(w.to_vector(), {-4.0 / 12, -24.0 / 12}) < 1e-6);
    window();
    CHECK(largest_difference(w.to_vector(), {-8.0 / 12, -48.0 / 12}) < 1e-6);
    CHECK(optimizer.updates() == 2);

    // Unequal parts of a batch, weighted by their sizes, equal the batch.
    Regression whole, parts;
    SGD plain({whole.w}, {.lr = 0.1f});
    Accumulate split(SGD({parts.w}, {.lr = 0.1f}), 3);
    plain.backward(whole.loss(0, 24));
    plain.step();
    const std::pair<int64_t, int64_t> ranges[] = {{0, 5}, {5, 21}, {21, 24}};
    for (const auto& [begin, end] : ranges) {
      split.backward(parts.loss(begin, end), static_cast<float>(end - begin));
      split.step();
    }
    CHECK(relative_difference(parts.w.to_vector(), whole.w.to_vector()) < 1e-6);
  });
}

TEST_CASE("accumulate: a partial window is flushed with its own divisor") {
  on_each_device([] {
    Tensor w = parameter({0});
    Accumulate optimizer(SGD({w}, {.lr = 1}), 4);
    CHECK_FALSE(optimizer.flush());
    one_step(optimizer, w, {3}, 1);
    one_step(optimizer, w, {6}, 2);
    CHECK(optimizer.position() == 2);
    CHECK(optimizer.flush());
    CHECK(w.item() == -5);
    CHECK(optimizer.position() == 0);
    CHECK_FALSE(optimizer.flush());
    for (int i = 0; i < 4; ++i) one_step(optimizer, w, {1});  // the next window starts anew
    CHECK(w.item() == -6);
    CHECK(optimizer.updates() == 2);
  });
}

TEST_CASE("accumulate: a micro-batch without weight counts for nothing") {
  on_each_device([] {
    Tensor w = parameter({0});
    Accumulate optimizer(SGD({w}, {.lr = 1}), 2);
    one_step(optimizer, w, {std::nanf("")}, 0);
    one_step(optimizer, w, {2}, 8);
    CHECK(w.item() == -2);
    one_step(optimizer, w, {1}, 0);
    one_step(optimizer, w, {1}, 0);
    CHECK(w.item() == -2);
    CHECK(optimizer.updates() == 1);
  });
}

TEST_CASE("accumulate: an overflow voids its window and the scale falls once") {
  on_each_device([] {
    for (int bad = 0; bad < 3; ++bad) {
      Tensor w = parameter({1, 1});
      Accumulate optimizer(Adam({w}, {.lr = 0.1f, .weight_decay = 0.1f}), 3);
      optimizer.set_scaler(LossScaler::dynamic(1024));
      for (int i = 0; i < 3; ++i) one_step(optimizer, w, {i == bad ? infinity : 1, 1});
      CHECK(w.to_vector() == Values{1, 1});
      CHECK(optimizer.skipped() == 1);
      CHECK(optimizer.loss_scale() == 512);
      // Nothing of that window is left.
      for (int i = 0; i < 3; ++i) one_step(optimizer, w, {1, 1});
      CHECK(largest_difference(w.to_vector(), {0.9, 0.9}) < 1e-6);
      CHECK(optimizer.updates() == 1);
    }
  });
}

TEST_CASE("accumulate: two runs give the same bits") {
  on_each_device([] {
    const auto run = [] {
      Regression problem;
      Accumulate optimizer(AdamW({problem.w}), 4);
      for (int64_t i = 0; i < 16; ++i) {
        optimizer.backward(problem.loss(i, i + 5), static_cast<float>(1 + i % 3));
        optimizer.step();
      }
      return problem.w.to_vector();
    };
    CHECK(run() == run());
  });
}

TEST_CASE("accumulate: backends agree") {
  std::vector<Values> results;
  on_each_device([&] {
    Regression problem;
    Accumulate optimizer(AdamW({problem.w}, {.lr = 0.01f}), 4);
    optimizer.set_max_norm(0.5f);
    for (int64_t i = 0; i < 16; ++i) {
      optimizer.backward(problem.loss(i, i + 5));
      optimizer.step();
    }
    results.push_back(problem.w.to_vector());
  });
  for (const Values& result : results) CHECK(relative_difference(result, results[0]) < 1e-5);
}

TEST_CASE("accumulate: a state from inside a window goes on bit for bit") {
  on_each_device([] {
    const auto train = [](int stop_after, bool unused) {
      Tensor w = parameter({1, 2, 3}, "w"), v = parameter({4, 5}, "v");
      auto made = [&] { return std::make_unique<Accumulate>(Adam({w, v}, {.lr = 0.1f}), 4); };
      std::unique_ptr<Accumulate> optimizer = made();
      for (int i = 0; i < 10; ++i) {
        const auto f = static_cast<float>(i);
        Tensor loss = loss_with(w, {0.1f * f, 1.0f / 3, -f});
        if (!unused) loss = loss + loss_with(v, {f, 0.7f});
        optimizer->backward(loss, 1 + 0.3f * f);
        optimizer->step();
        optimizer->zero_grad();
        if (i + 1 != stop_after) continue;
        const Optimizer::NamedState saved = copied(optimizer->state());
        optimizer.reset();
        optimizer = made();
        optimizer->load_state(saved);
        CHECK(optimizer->position() == static_cast<uint32_t>(stop_after % 4));
      }
      optimizer->flush();
      Values all = w.to_vector();
      for (const float x : v.to_vector()) all.push_back(x);
      return all;
    };
    for (const bool unused : {false, true})
      for (const int stop : {1, 2, 3, 4, 6, 9}) {
        CAPTURE(stop);
        CHECK(train(stop, unused) == train(-1, unused));
      }
    // The same with another loss scale.
    for (const float scale : {1.0f, 256.0f}) {
      Tensor w = parameter({1, 2}, "w");
      Accumulate first(SGD({w}, {.lr = 1}), 2);
      first.set_scaler(LossScaler::fixed(64));
      first.backward(loss_with(w, {1, 3}));
      first.step();
      const Optimizer::NamedState saved = first.state();
      Tensor x = parameter({1, 2}, "w");
      Accumulate second(SGD({x}, {.lr = 1}), 2);
      second.set_scaler(LossScaler::fixed(scale));
      second.load_state(saved);
      second.restart_scaler();
      CHECK(second.loss_scale() == scale);
      second.backward(loss_with(x, {3, 5}));
      CHECK(second.step());
      CHECK(x.to_vector() == Values{-1, -2});
    }
    // The window becomes shorter than the part of it that is done.
    Tensor w = parameter({1}, "w");
    Accumulate four(SGD({w}), 4);
    for (int i = 0; i < 3; ++i) {
      four.backward(loss_with(w, {1}));
      four.step();
    }
    const Optimizer::NamedState saved = four.state();
    Tensor x = parameter({1}, "w");
    Accumulate two(SGD({x}), 2);
    CHECK_THROWS_AS(two.load_state(saved), FileError);
  });
}

TEST_CASE("accumulate: a state that was refused leaves nothing behind" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const auto check_windows = [](Optimizer& optimizer, const Tensor& w) {
    const Optimizer::NamedState between = copied(optimizer.state());
    optimizer.backward(loss_with(w, {1}));
    optimizer.step();
    Optimizer::NamedState inside = copied(optimizer.state());
    optimizer.flush();
    std::erase_if(inside, [](const auto& one) { return one.first == "control"; });
    CHECK_THROWS_AS(optimizer.load_state(inside), FileError);
    optimizer.load_state(between);
    CHECK(optimizer.position() == 0);
    CHECK(optimizer.updates() == 0);
    optimizer.backward(loss_with(w, {1}));
    CHECK(!optimizer.step());
    optimizer.zero_grad();
    optimizer.backward(loss_with(w, {1}));
    CHECK(optimizer.step());
  };
  Tensor w = parameter({1}, "w"), v = parameter({1}, "v");
  Accumulate sgd(SGD({w}), 2);
  check_windows(sgd, w);
  AdamA adama({v}, 2);
  check_windows(adama, v);
}

TEST_CASE("accumulate: mistakes are typed errors" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  Tensor w = parameter({1});
  CHECK_THROWS_AS(Accumulate(SGD({w}), 0), ValueError);
  Accumulate optimizer(SGD({w}), 2);
  CHECK_THROWS_AS(optimizer.step(), AutogradError);
  CHECK_THROWS_AS(optimizer.backward(loss_with(w, {1}), -1), ValueError);
  optimizer.backward(loss_with(w, {1}));
  CHECK_THROWS_AS(optimizer.backward(loss_with(w, {1})), AutogradError);
  CHECK_THROWS_AS(optimizer.flush(), AutogradError);
  CHECK_THROWS_AS(optimizer.state(), AutogradError);
  optimizer.step();
  CHECK_THROWS_AS(optimizer.load_state(optimizer.state()), AutogradError);
  CHECK_THROWS_AS(optimizer.set_scaler(LossScaler::none()), AutogradError);
  optimizer.flush();
  CHECK(optimizer.state().size() == 1);
}
