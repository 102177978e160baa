// Averages of parameters: when they are updated, what they hold, exchange with the parameters,
// state.
#include <cmath>

#include "optim/accumulation/accumulate.h"
#include "optim/ema.h"
#include "optim/lookahead.h"
#include "optim/sgd.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr int ema_size = 13;

// Runs one micro-batch and returns the parameter.
Values ema_step(Optimizer& optimizer, const Tensor& w, int seed, bool overflows = false) {
  Values gradient = some_values(ema_size, seed);
  if (overflows) gradient[3] = infinity;
  optimizer.zero_grad();
  optimizer.backward(loss_with(w, gradient));
  optimizer.step();
  return w.to_vector();
}

// Returns the values that apply() shows.
Values average(ParameterAverage& ema, const Tensor& w) {
  ema.apply();
  Values shown = w.to_vector();
  ema.restore();
  return shown;
}

}  // namespace

TEST_CASE("ema: one tick per update, none for a skipped one") {
  on_each_device([] {
    for (const bool corrected : {false, true}) {
      CAPTURE(corrected);
      Tensor w = parameter(some_values(ema_size));
      SGD sgd({w}, {.lr = 0.1f});
      ema_step(sgd, w, 9);  // before the average begins
      Ema ema(sgd, {.decay = 0.9f, .bias_correction = corrected});
      CHECK(average(ema, w) == w.to_vector());

      std::vector<double> sum = doubles(w.to_vector());
      if (corrected) sum.assign(ema_size, 0);
      int ticks = 0;
      for (const bool overflows : {false, true, false, true, true, false, false}) {
        const Values now = ema_step(sgd, w, ticks, overflows);
        if (!overflows) {
          ++ticks;
          for (int i = 0; i < ema_size; ++i) sum[i] = 0.9 * sum[i] + 0.1 * now[i];
        }
        std::vector<double> expected = sum;
        if (corrected)
          for (double& v : expected) v /= 1 - std::pow(0.9, ticks);
        CHECK(largest_difference(average(ema, w), expected) < 1e-6);
        CHECK(w.to_vector() == now);
      }
    }
  });
}

TEST_CASE("ema: one tick per window of Accumulate, also when made before it") {
  on_each_device([] {
    for (const bool before : {false, true}) {
      Tensor w = parameter(some_values(ema_size));
      SGD sgd({w}, {.lr = 0.1f});
      std::unique_ptr<Ema> ema;
      if (before) ema = std::make_unique<Ema>(sgd, EmaOptions{.decay = 0.5f});
      Accumulate optimizer(std::move(sgd), 3);
      if (!before) ema = std::make_unique<Ema>(optimizer, EmaOptions{.decay = 0.5f});
      std::vector<double> expected = doubles(w.to_vector());
      for (int t = 0; t < 9; ++t) {
        const Values now = ema_step(optimizer, w, t, t == 4);  // the second window overflows
        if (t == 2 || t == 8)
          for (int i = 0; i < ema_size; ++i) expected[i] = 0.5 * expected[i] + 0.5 * now[i];
        CHECK(largest_difference(average(*ema, w), expected) < 1e-6);
      }
      CHECK(optimizer.skipped() == 1);
    }
  });
}

TEST_CASE("ema: state continues it to the bit") {
  on_each_device([] {
    const EmaOptions options{.decay = 0.9f, .bias_correction = true};
    Tensor a = parameter(some_values(ema_size), "w"), b = parameter(some_values(ema_size, 8), "w");
    SGD first({a}, {.lr = 0.1f, .momentum = 0.9f}), second({b}, {.lr = 0.1f, .momentum = 0.9f});
    ema_step(first, a, 1);
    Ema ema(first, options), resumed(second, options);
    ema_step(first, a, 2);
    b.copy_(a);
    second.load_state(first.state());
    resumed.load_state(ema.state());
    for (int t = 3; t < 6; ++t) CHECK(ema_step(first, a, t) == ema_step(second, b, t));
    CHECK(average(ema, a) == average(resumed, b));
    CHECK(ema.state()[1].first == "ema.w");
    CHECK_THROWS_AS(ema.load_state({}), FileError);
  });
}

TEST_CASE("ema: what may not happen while the averages are applied" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  Tensor w = parameter(some_values(ema_size));
  SGD sgd({w});
  w.set_grad(ones(w.shape()));
  {
    Ema ema(sgd);
    CHECK_THROWS_AS(ema.restore(), AutogradError);
    const Tensor loss = sum(square(w));  // reads the parameters from before
    ema.apply();
    CHECK_THROWS_AS(loss.backward(), AutogradError);
    CHECK_THROWS_AS(ema.apply(), AutogradError);
    CHECK_THROWS_AS(ema.state(), AutogradError);
    CHECK_THROWS_AS(sgd.step(), AutogradError);
    ema.restore();
    sgd.step();
  }
  sgd.step();  // the average is gone
  CHECK(sgd.updates() == 2);
  CHECK_THROWS_AS(Ema(sgd, {.decay = 1}), ValueError);
}

TEST_CASE("lookahead: slow weights, by the paper's rule") {
  on_each_device([] {
    Tensor w = parameter(some_values(ema_size), "w");
    SGD sgd({w}, {.lr = 0.1f});
    ema_step(sgd, w, 9);  // before the slow weights begin
    Lookahead lookahead(sgd, 3, 0.25f);
    std::vector<double> fast = doubles(w.to_vector()), slow = fast;
    for (int t = 0, updates = 0; t < 10; ++t) {
      const bool overflows = t == 4;
      const Values now = ema_step(sgd, w, t, overflows);
      if (!overflows) {
        ++updates;
        const Values g = some_values(ema_size, t);
        for (int i = 0; i < ema_size; ++i) {
          fast[i] -= 0.1f * g[i];
          if (updates % 3 == 0) fast[i] = slow[i] += 0.25 * (fast[i] - slow[i]);
        }
      }
      CHECK(largest_difference(now, fast) < 1e-6);
    }
    CHECK(lookahead.state()[1].first == "lookahead.w");
    CHECK(largest_difference(lookahead.state()[1].second.to_vector(), slow) < 1e-6);
  });
}

TEST_CASE("lookahead: state continues it to the bit") {
  on_each_device([] {
    Tensor a = parameter(some_values(ema_size), "w"), b = parameter(some_values(ema_size, 8), "w");
    SGD first({a}, {.lr = 0.1f}), second({b}, {.lr = 0.1f});
    Lookahead lookahead(first, 3), resumed(second, 3);
    for (int t = 0; t < 4; ++t) ema_step(first, a, t);
    b.copy_(a);
    second.load_state(first.state());
    resumed.load_state(lookahead.state());
    for (int t = 4; t < 8; ++t) CHECK(ema_step(first, a, t) == ema_step(second, b, t));
  });
}

TEST_CASE("swa: the mean of the parameters after every second update") {
  on_each_device([] {
    Tensor w = parameter(some_values(ema_size), "w");
    SGD sgd({w}, {.lr = 0.1f});
    ema_step(sgd, w, 9);  // before the average begins
    Swa swa(sgd, 2);
    std::vector<double> mean(ema_size);
    for (int t = 0, updates = 0; t < 8; ++t) {
      const bool overflows = t == 3;
      const Values now = ema_step(sgd, w, t, overflows);
      if (overflows || ++updates % 2 != 0) continue;
      const int count = updates / 2;
      for (int i = 0; i < ema_size; ++i) mean[i] += (now[i] - mean[i]) / count;
      CHECK(largest_difference(average(swa, w), mean) < 1e-6);
    }
    CHECK(w.to_vector() != average(swa, w));
    CHECK(swa.state()[1].first == "swa.w");
  });
}
