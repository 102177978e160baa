// Properties of Accumulate on random models, windows and weights, with every optimizer: a window
// has the effect of one batch.
#include "core/tensor/weight_copies.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/fixtures/accumulation_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

Values divided_gradients(const RandomProblem& problem, double divisor) {
  Values all;
  for (const Tensor& p : problem.parameters) {
    const Tensor gradient = p.grad();
    for (int64_t i = 0; i < p.numel(); ++i) all.push_back(0);
    if (!gradient) continue;
    const Values own = gradient.to_vector();
    for (size_t i = 0; i < own.size(); ++i)
      all[all.size() - own.size() + i] = static_cast<float>(own[i] / divisor);
  }
  return all;
}

// Runs the window's micro-batches from sample `begin` on, with their sizes as weights.
void run_window(Accumulate& optimizer, const RandomProblem& problem, const Window& window,
                int64_t begin = 0) {
  for (const int64_t size : window.sizes) {
    optimizer.backward(problem.loss(begin, begin + size), static_cast<float>(size));
    optimizer.step();
    begin += size;
  }
  optimizer.flush();  // ends a window that is shorter
}

// Makes the same update by the plain optimizer: one backward for each chunk, weighted by its share.
void run_chunks(Optimizer& optimizer, const RandomProblem& problem, const Window& window,
                int64_t begin = 0) {
  for (const int64_t size : window.sizes) {
    optimizer.backward(problem.loss(begin, begin + size),
                       static_cast<float>(size) / static_cast<float>(window.total()));
    begin += size;
  }
  optimizer.step();
}

void set_up_from(Optimizer& optimizer, uint64_t seed) {
  if (seed % 2 == 0) optimizer.set_max_norm(0.5f);
  if (seed % 3 == 0) optimizer.set_scaler(LossScaler::dynamic(1024, 2, 0.5f, 2));
  optimizer.set_schedule(Schedule::cosine(20, 2));
}

}  // namespace

TEST_CASE("accumulate properties: the gradient and the updates are those of the one batch") {
  on_each_device([] {
    for (uint64_t seed = 1; seed <= 24; ++seed) {
      DataRandom random(seed, 7);
      const RandomProblem whole(seed), parts(seed);
      const Window window = Window::random(random, RandomProblem::samples, between(random, 2, 12));
      const std::string what =
          fmt::format("{}; micro-batches of {}", whole.str(), fmt::join(window.sizes, ", "));
      CAPTURE(what);
      SGD plain(whole.groups(), {.lr = 0.1f, .momentum = 0.9f});
      Accumulate accumulated(SGD(parts.groups(), {.lr = 0.1f, .momentum = 0.9f}), window.count());
      plain.backward(whole.loss(0, RandomProblem::samples));
      plain.step();
      run_window(accumulated, parts, window);
      const double sum = static_cast<double>(window.total()) / static_cast<double>(window.sizes[0]);
      CHECK(relative_distance(divided_gradients(parts, sum), divided_gradients(whole, 1)) < 1e-6);
      CHECK(relative_distance(parts.values(), whole.values()) < 1e-6);
    }
  });
}

TEST_CASE("accumulate properties: three updates of every smooth optimizer are those of one batch" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  for (const OptimizerMaker& maker : optimizer_makers()) {
    if (!maker.is_smooth) continue;
    CAPTURE(maker.name);
    for (uint64_t seed = 101; seed <= 104; ++seed) {
      const RandomProblem whole(seed), parts(seed);
      CAPTURE(whole.str());
      DataRandom random(seed, 7);
      const auto plain = maker.plain(whole.groups());
      const auto accumulated = maker.accumulating(parts.groups(), 12);
      for (int update = 0; update < 3; ++update) {
        plain->zero_grad();
        plain->backward(whole.loss(0, RandomProblem::samples));
        plain->step();
        run_window(*accumulated, parts,
                   Window::random(random, RandomProblem::samples, between(random, 1, 12)));
      }
      CHECK(relative_distance(parts.values(), whole.values()) < 1e-6);
      CHECK(accumulated->updates() == 3);
    }
  }
}

// Full windows and flushed ones, with loss scaling, clipping and a schedule.
TEST_CASE("accumulate properties: every optimizer has the bits of one batch in the same chunks") {
  on_each_device([] {
    for (const OptimizerMaker& maker : optimizer_makers()) {
      CAPTURE(maker.name);
      for (uint64_t seed = 201; seed <= 206; ++seed) {
        const RandomProblem whole(seed), parts(seed);
        CAPTURE(whole.str());
        DataRandom random(seed, 7);
        const int64_t n = between(random, 1, 6);
        const auto plain = maker.plain(whole.groups());
        const auto accumulated = maker.accumulating(parts.groups(), static_cast<uint32_t>(n));
        set_up_from(*plain, seed);
        set_up_from(*accumulated, seed);
        for (int update = 0; update < 4; ++update) {
          const Window window = Window::exact(random, between(random, 1, n));
          const int64_t begin =
              static_cast<int64_t>(random.below(RandomProblem::samples - window.total() + 1));
          CAPTURE(n);
          CAPTURE(fmt::format("{} from {} on", fmt::join(window.sizes, ", "), begin));
          plain->zero_grad();
          run_chunks(*plain, whole, window, begin);
          run_window(*accumulated, parts, window, begin);
          REQUIRE(parts.values() == whole.values());
        }
        CHECK(state_of(*accumulated) == state_of(*plain));
      }
    }
  });
}

TEST_CASE("accumulate properties: n = 1 is every plain optimizer to the bit" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  for (const OptimizerMaker& maker : optimizer_makers()) {
    CAPTURE(maker.name);
    for (uint64_t seed = 301; seed <= 303; ++seed) {
      const RandomProblem one(seed), other(seed);
      CAPTURE(one.str());
      const auto plain = maker.plain(one.groups());
      const auto accumulated = maker.accumulating(other.groups(), 1);
      set_up_from(*plain, seed);
      set_up_from(*accumulated, seed);
      DataRandom random(seed, 7);
      for (int update = 0; update < 6; ++update) {
        const int64_t begin = between(random, 0, 40), end = between(random, begin + 1, 48);
        plain->zero_grad();
        plain->backward(one.loss(begin, end));
        CHECK(plain->step());
        accumulated->backward(other.loss(begin, end));
        CHECK(accumulated->step());
        accumulated->zero_grad();
      }
      CHECK(other.values() == one.values());
      CHECK(state_of(*accumulated) == state_of(*plain));
    }
  }
}

TEST_CASE("accumulate properties: windows may change their length" * doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  for (uint64_t seed = 401; seed <= 408; ++seed) {
    const RandomProblem whole(seed), parts(seed);
    CAPTURE(whole.str());
    DataRandom random(seed, 7);
    Adam plain(whole.groups(), {.lr = 0.01f});
    Accumulate accumulated(Adam(parts.groups(), {.lr = 0.01f}), 3);
    set_up_from(plain, seed);
    set_up_from(accumulated, seed);
    for (const int64_t n : {int64_t{3}, int64_t{1}, int64_t{1}, between(random, 1, 6), int64_t{5},
                            int64_t{1}, between(random, 2, 6)}) {
      accumulated.set_micro_batches(static_cast<uint32_t>(n));
      CAPTURE(n);
      const Window window = Window::exact(random, n);
      plain.zero_grad();
      run_chunks(plain, whole, window);
      run_window(accumulated, parts, window);
      accumulated.zero_grad();
      REQUIRE(parts.values() == whole.values());
    }
    CHECK(accumulated.updates() == 7);
  }
}

TEST_CASE("accumulate: another length is for the next window, copies of weights follow it" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  Tensor w = parameter({1, 2});
  Accumulate optimizer(SGD({w}, {.lr = 1}), 1);
  CHECK_THROWS_AS(optimizer.set_micro_batches(0), ValueError);
  using enum WeightCopyUse;
  const auto copies = [&] {
    const WeightCopies* all = WeightCopies::of(w);
    CHECK((all ? all->use() : never) == optimizer.weight_copies());
    return optimizer.weight_copies();
  };
  CHECK(copies() == never);
  optimizer.set_micro_batches(2);
  CHECK(copies() == outside_segments);
  optimizer.backward(loss_with(w, {1, 1}));
  CHECK_THROWS_AS(optimizer.set_micro_batches(4), AutogradError);
  optimizer.step();
  CHECK_THROWS_AS(optimizer.set_micro_batches(4), AutogradError);
  CHECK(optimizer.micro_batches() == 2);
  optimizer.flush();
  optimizer.set_micro_batches(4);
  CHECK(copies() == outside_segments);
  optimizer.set_micro_batches(1);
  CHECK(copies() == never);
  for (const WeightCopyUse chosen : {always, never}) {  // the caller's choice stays
    optimizer.set_micro_batches(chosen == always ? 1 : 2);
    optimizer.set_weight_copies(chosen);
    for (const uint32_t n : {2u, 3u, 1u}) {
      optimizer.set_micro_batches(n);
      if (n > 1) CHECK(copies() == chosen);
    }
  }
}
