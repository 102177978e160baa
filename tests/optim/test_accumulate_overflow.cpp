// Overflows that void only their micro-batch.

#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/sgd.h"
#include "tests/fixtures/accumulation_fixture.h"
#include "tests/fixtures/forecast_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr auto voids_micro_batch = Accumulate::Overflow::voids_micro_batch;

std::unique_ptr<Accumulate> judging(Optimizer&& optimizer, uint32_t n) {
  auto made = std::make_unique<Accumulate>(std::move(optimizer), n);
  made->set_overflow(voids_micro_batch);
  return made;
}

Values state_values(const Optimizer& optimizer) {
  Values all;
  for (const auto& [name, tensor] : optimizer.state())
    if (name != "control")
      for (const float v : tensor.to_vector()) all.push_back(v);
  return all;
}

}  // namespace

TEST_CASE("accumulate overflow: the update is the mean of the others, by their weights") {
  on_each_device([] {
    for (const float bad : {infinity, -infinity, std::nanf("")})
      for (int at = 0; at < 3; ++at) {
        CAPTURE(bad);
        CAPTURE(at);
        Tensor w = parameter({0, 0});
        const auto optimizer = judging(SGD({w}, {.lr = 1}), 3);
        const float gradients[] = {1, 4, 7}, weights[] = {2, 6, 8};
        double sum = 0, weight = 0;
        for (int i = 0; i < 3; ++i) {
          one_step(*optimizer, w, {gradients[i], i == at ? bad : 1}, weights[i]);
          if (i == at) continue;
          sum += double{gradients[i]} * weights[i];
          weight += weights[i];
        }
        CHECK(largest_difference(w.to_vector(), {-sum / weight, -1}) < 1e-6);
        CHECK(optimizer->updates() == 1);
        CHECK(optimizer->skipped() == 0);
        CHECK(optimizer->counts().voided == 1);
        CHECK(contains(optimizer->diagnose(), "1 micro-batches voided"));
        // Nothing of that micro-batch is left.
        for (int i = 0; i < 3; ++i) one_step(*optimizer, w, {0, 1});
        CHECK(largest_difference(w.to_vector(), {-sum / weight, -2}) < 1e-6);
      }
  });
}

// Every optimizer, with clipping, a schedule, an average and a random model.
TEST_CASE("accumulate overflow: the bits are those of a window without that micro-batch") {
  on_each_device([] {
    for (const OptimizerMaker& maker : optimizer_makers()) {
      CAPTURE(maker.name);
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        const auto train = [&](bool overflows) {
          const RandomProblem problem(seed);
          const auto optimizer = maker.accumulating(problem.groups(), overflows ? 4 : 3);
          optimizer->set_overflow(voids_micro_batch);
          optimizer->set_max_norm(0.5f);
          optimizer->set_scaler(LossScaler::fixed(256));
          optimizer->set_schedule(Schedule::cosine(10));
          Ema ema(*optimizer, {.decay = 0.5f});
          for (int64_t window = 0; window < 3; ++window)
            for (int64_t i = 0; i < 4; ++i) {
              const bool is_bad = i == (window + 1) % 4;
              if (is_bad && !overflows) continue;
              const int64_t begin = 12 * window + 3 * i;
              const Tensor loss = problem.loss(begin, begin + 3);
              optimizer->backward(is_bad ? loss * infinity : loss, static_cast<float>(1 + i));
              optimizer->step();
            }
          CHECK(optimizer->updates() == 3);
          CHECK(optimizer->counts().voided == (overflows ? 3 : 0));
          ema.apply();
          Values all = problem.values();
          ema.restore();
          for (const float v : problem.values()) all.push_back(v);
          for (const float v : state_values(*optimizer)) all.push_back(v);
          return all;
        };
        CAPTURE(RandomProblem(seed).str());
        CHECK(train(true) == train(false));
      }
    }
  });
}

TEST_CASE("accumulate overflow: without one it is the window of sums in place") {
  on_each_device([] {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      const auto train = [&](Accumulate::Overflow what) {
        const RandomProblem problem(seed);
        Accumulate optimizer(SGD(problem.groups(), {.lr = 0.05f, .momentum = 0.9f}), 3);
        optimizer.set_overflow(what);
        for (int64_t i = 0; i < 8; ++i) {  // the last window is flushed
          optimizer.backward(problem.loss(4 * i, 4 * i + 4), static_cast<float>(1 + i % 3));
          optimizer.step();
          optimizer.zero_grad();
        }
        optimizer.flush();
        return problem.values();
      };
      CAPTURE(RandomProblem(seed).str());
      CHECK(relative_distance(train(voids_micro_batch), train(Accumulate::Overflow::voids_window)) <
            1e-6);
    }
  });
}

TEST_CASE("accumulate overflow: the loss scale falls once, at the end of the window") {
  on_each_device([] {
    Tensor w = parameter({0, 0});
    const auto optimizer = judging(Adam({w}, {.lr = 0.1f, .weight_decay = 0.1f}), 3);
    optimizer->set_scaler(LossScaler::dynamic(1024, 2, 0.5f, 2));
    one_step(*optimizer, w, {infinity, 1});
    CHECK(optimizer->loss_scale() == 1024);  // the window's other micro-batches share this scale
    one_step(*optimizer, w, {infinity, 1});
    CHECK(optimizer->loss_scale() == 1024);
    one_step(*optimizer, w, {1, 1});
    CHECK(optimizer->loss_scale() == 512);
    CHECK(optimizer->updates() == 1);
    CHECK(largest_difference(w.to_vector(), {-0.1, -0.1}) < 1e-6);

    const Values before = w.to_vector(), state = state_values(*optimizer);
    for (int i = 0; i < 3; ++i) one_step(*optimizer, w, {infinity, 1});  // nothing is left
    CHECK(w.to_vector() == before);
    CHECK(state_values(*optimizer) == state);
    CHECK(optimizer->skipped() == 1);
    CHECK(optimizer->loss_scale() == 256);
    CHECK(optimizer->counts().voided == 5);

    for (int i = 0; i < 6; ++i) one_step(*optimizer, w, {1, 1});
    CHECK(optimizer->loss_scale() == 512);  // two finite windows
    CHECK(optimizer->updates() == 3);
  });
}

TEST_CASE("accumulate overflow: it goes on from inside a window bit for bit") {
  on_each_device([] {
    const auto train = [](int stop) {
      Tensor w = parameter({1, 2, 3}, "w"), v = parameter({4}, "v");
      const auto made = [&] {
        auto optimizer = judging(Adam({w, v}, {.lr = 0.1f}), 4);
        optimizer->set_scaler(LossScaler::dynamic(64, 2, 0.5f, 3));
        return optimizer;
      };
      auto optimizer = made();
      for (int i = 0; i < 12; ++i) {
        const auto f = static_cast<float>(i);
        const bool is_bad = i == 1 || i == 6 || i == 8;
        Tensor loss = loss_with(w, {is_bad ? infinity : 0.1f * f, 1.0f / 3, -f});
        if (i % 3 == 0) loss = loss + loss_with(v, {f});
        optimizer->backward(loss, 1 + 0.3f * f);
        optimizer->step();
        if (i + 1 != stop) continue;
        const Optimizer::NamedState saved = copied(optimizer->state());
        optimizer.reset();
        optimizer = made();
        optimizer->load_state(saved);
        CHECK(optimizer->position() == static_cast<uint32_t>(stop % 4));
      }
      CHECK(optimizer->counts().voided == 3);
      Values all = w.to_vector();
      all.push_back(v.item());
      all.push_back(optimizer->loss_scale());
      return all;
    };
    const Values whole = train(-1);
    for (const int stop : {1, 2, 3, 4, 7, 9, 11}) {
      CAPTURE(stop);
      CHECK(train(stop) == whole);
    }
  });
}

TEST_CASE("accumulate overflow: micro-batches that run side by side are voided together") {
  on_each_device([] {
    Tensor w = parameter({1, 2}, "w");
    const auto optimizer = judging(SGD({w}, {.lr = 1}), 2);
    const auto window = [&](float second) {
      optimizer->run_together([&](uint32_t i) {
        return MicroBatch{loss_with(w, {i == 0 ? 2 : second, 0}), 1};
      });
    };
    window(4);
    CHECK(w.to_vector() == Values{-2, 2});
    window(infinity);
    CHECK(w.to_vector() == Values{-2, 2});
    CHECK(optimizer->skipped() == 1);
    CHECK(optimizer->counts().voided == 0);
  });
}

TEST_CASE("accumulate overflow: mistakes are typed errors" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  Tensor w = parameter({1}, "w");
  const auto optimizer = judging(SGD({w}), 2);
  one_step(*optimizer, w, {1});
  CHECK_THROWS_AS(optimizer->set_overflow(Accumulate::Overflow::voids_window), AutogradError);
  const Optimizer::NamedState judged = optimizer->state();
  Tensor v = parameter({1}, "w");
  Accumulate other(SGD({v}), 2);
  CHECK_THROWS_WITH_AS(other.load_state(judged), doctest::Contains("set_overflow()"), FileError);
  one_step(other, v, {1});
  const Optimizer::NamedState plain = other.state();
  Tensor u = parameter({1}, "w");
  const auto third = judging(SGD({u}), 2);
  CHECK_THROWS_WITH_AS(third->load_state(plain), doctest::Contains("set_overflow()"), FileError);
}

TEST_CASE("accumulate overflow: dry runs predict its memory to the byte") {
  on_each_device([] {
    for (const bool judges : {false, true}) {
      const auto program = [judges] {
        Tensor w = zeros({64, 40}).set_requires_grad(), v = zeros({130, 64}).set_requires_grad();
        Accumulate optimizer(Adam({w, v}), 3);
        if (judges) optimizer.set_overflow(voids_micro_batch);
        for (int i = 0; i < 7; ++i) {
          optimizer.backward(sum(square(linear(tanh(linear(ones({8, 40}), w)), v))));
          optimizer.step();
          optimizer.zero_grad();
        }
      };
      CAPTURE(judges);
      check_forecast(program);
    }
  });
}

TEST_CASE("accumulate overflow: a window of one micro-batch has no sums beside its gradients") {
  on_each_device([] {
    const auto peak = [](bool judges) {
      Tensor w = parameter(Values(65536, 1));
      Accumulate optimizer(SGD({w}, {.lr = 1}), 1);
      if (judges) optimizer.set_overflow(voids_micro_batch);
      default_device()->reset_peak();
      for (int i = 0; i < 3; ++i) one_step(optimizer, w, Values(65536, 1));
      return default_device()->memory_report().peak;
    };
    CHECK(peak(true) == peak(false));
  });
}
