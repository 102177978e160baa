// The defects of the AccumOptimizer that this library follows (bojone's, for Keras), one test each.
// It ran its inner optimizer in every micro-step, with a rate of 0 and decays next to 1 in between.
#include <cmath>

#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/sgd.h"
#include "tests/fixtures/accumulation_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

void run_micro_batch(Optimizer& optimizer, const Tensor& w, const Values& gradient) {
  optimizer.backward(loss_with(w, gradient));
  optimizer.step();
  optimizer.zero_grad();
}

float gradient_at(int i) {
  return static_cast<float>(1 << i);
}

}  // namespace

// Its windows of 4 were {none}, {1, 2, 3}, {5, 6, 7}, {9, 10, 11}, each divided by 4.
TEST_CASE("accumulate defects: micro-batches 0, 4 and 8 were discarded") {
  on_each_device([] {
    Tensor w = parameter({0});
    Accumulate optimizer(SGD({w}, {.lr = 1}), 4);
    float expected = 0;
    for (int i = 0; i < 12; ++i) {
      run_micro_batch(optimizer, w, {gradient_at(i)});
      if (i % 4 == 3)  // all four bits of the window, none of another
        expected -=
            (gradient_at(i) + gradient_at(i - 1) + gradient_at(i - 2) + gradient_at(i - 3)) / 4;
      CHECK(w.item() == expected);
    }
    CHECK(optimizer.updates() == 3);
  });
}

TEST_CASE("accumulate defects: with n = 1 it never updated") {
  on_each_device([] {
    Tensor w = parameter({0});
    Accumulate optimizer(SGD({w}, {.lr = 1}), 1);
    for (int i = 0; i < 5; ++i) {
      const float before = w.item();
      run_micro_batch(optimizer, w, {gradient_at(i)});
      CHECK(w.item() == before - gradient_at(i));
    }
    CHECK(optimizer.updates() == 5);
  });
}

TEST_CASE("accumulate defects: parameters and momenta drifted in idle steps") {
  on_each_device([] {
    for (const OptimizerMaker& maker : optimizer_makers()) {
      CAPTURE(maker.name);
      const RandomProblem problem(5);
      const auto optimizer = maker.accumulating(problem.groups(), 6);
      const auto own_state = [&] {
        std::vector<Values> all = {problem.values()};
        for (const auto& [name, tensor] : optimizer->state())
          if (!name.starts_with("accumulate.")) all.push_back(tensor.to_vector());
        return all;
      };
      for (int window = 0; window < 2; ++window) {
        const std::vector<Values> before = own_state();  // the control buffer is unchanged, too
        for (int64_t i = 0; i < 6; ++i) {
          CHECK(own_state() == before);
          optimizer->backward(problem.loss(8 * i, 8 * i + 8));
          optimizer->step();
        }
        CHECK(own_state() != before);
      }
    }
  });
}

TEST_CASE("accumulate defects: iterations, schedule, bias correction and averages ticked in each") {
  on_each_device([] {
    constexpr int n = 5, windows = 4;
    Tensor w = parameter({0});
    Accumulate optimizer(Adam({w}, {.lr = 0.5f}), n);
    const Schedule schedule = Schedule::linear(windows);
    optimizer.set_schedule(schedule);
    Ema ema(optimizer, {.decay = 0.5f});
    double expected = 0, average = 0;
    for (int i = 0; i < n * windows; ++i) {
      run_micro_batch(optimizer, w, {1});
      const int done = (i + 1) / n;
      CHECK(optimizer.updates() == static_cast<uint64_t>(done));
      if ((i + 1) % n == 0) {
        // Adam's update of equal gradients is the rate, if its correction counts updates.
        expected -= 0.5 * schedule.factor(static_cast<uint64_t>(done - 1));
        average += 0.5 * (expected - average);
        CHECK(optimizer.learning_rate() ==
              doctest::Approx(0.5 * schedule.factor(static_cast<uint64_t>(done - 1))));
      }
      CHECK(w.item() == doctest::Approx(expected).epsilon(1e-5));
      ema.apply();
      CHECK(w.item() == doctest::Approx(average).epsilon(1e-5));
      ema.restore();
    }
  });
}

// 1 + 2^-12 is 1 in f16, and so is every sum after it.
TEST_CASE("accumulate defects: sums had the parameters' dtype, where small gradients vanish") {
  on_each_device([] {
    constexpr float small = 0x1p-12f;
    for (const DType dtype : {DType::f16, DType::bf16}) {
      Tensor w = zeros({2}, dtype).set_requires_grad();
      w.impl().name = "w";
      Accumulate optimizer(SGD({w}, {.lr = 1}), 16);
      for (int i = 0; i < 16; ++i) {
        const Tensor gradient = cast(tensor(Values{i == 0 ? 1 : small, small}, {2}), dtype);
        optimizer.backward(cast(sum(w * gradient), DType::f32));
        optimizer.step();
      }
      Values master;
      for (const auto& [name, tensor] : optimizer.state())
        if (name == "master.w") master = tensor.to_vector();
      CHECK(master == Values{-(1 + 15 * small) / 16, -small});
    }
  });
}

TEST_CASE("accumulate defects: every micro-step paid for a pass of the optimizer") {
  on_each_device([] {
    const RandomProblem problem(9);
    Accumulate optimizer(Adam(problem.groups()), 4);
    // Counts the kernels of updates, and all kernels, of a micro-batch.
    const auto calls = [&] {
      default_device()->reset_peak();
      optimizer.backward(problem.loss(0, 8));
      optimizer.step();
      uint64_t all = 0;
      const WorkByPhase work = default_device()->work();
      for (const Work& phase : work) all += phase.calls;
      return std::pair(work[static_cast<size_t>(Phase::update)].calls, all);
    };
    for (int i = 0; i < 4; ++i) calls();  // passes work that happens only at first
    const auto first = calls(), second = calls(), third = calls(), last = calls();
    CHECK(first.first == 0);
    CHECK(second.first == 0);
    CHECK(third.first == 0);
    CHECK(last.first > 0);
    CHECK(second.second == third.second);
    CHECK(last.second == third.second + last.first);
    // The first micro-batch of a window sets its sums to zero, in one kernel for all parameters.
    CHECK(first.second <= second.second + 1);
  });
}
