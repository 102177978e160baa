// Mistakes of users are refused by name, and uses that only look wrong work: temporaries, scopes in
// any order, values of another device, indices out of range.
#include <cmath>

#include "nn/layers.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "planner/dry_run.h"
#include "planner/follow/follower.h"
#include "planner/follow/memory_budget.h"
#include "planner/search/search.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

Tensor tanh_chain(Tensor x) {
  for (int i = 0; i < 12; ++i) x = tanh(std::move(x) * 1.5f);
  return x;
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice,
                  "misuse: a recomputation scope owns its plan" * doctest::test_suite("host")) {
  Search search([] { return open_backend("dry:reference"); },
                [] { sum(tanh_chain(leaf(4096))).backward(); });
  const uint64_t plain = search.plain().peak(), least = search.memory().peak();
  REQUIRE(least < plain);
  const auto run = [&](bool planned) {
    Tensor w = leaf(4096), loss;
    device->reset_peak();
    {
      auto scope =
          planned ? checkpoint(search.budget((plain + least) / 2).plan) : checkpoint(Plan{});
      loss = sum(tanh_chain(w));
      CHECK_FALSE(scope.diverged());
    }
    loss.backward();
    return std::pair(w.grad().to_vector(), device->memory_report().peak);
  };
  const auto kept = run(false), replayed = run(true);
  CHECK(replayed.first == kept.first);
  CHECK(replayed.second < kept.second);
}

TEST_CASE_FIXTURE(CpuDevice, "misuse: values of another device are refused by name in a dry run" *
                                 doctest::test_suite("host")) {
  Linear model(4, 3);
  model.named_parameters();
  const Tensor x = rand({2, 4});
  const std::vector<float> before = model.weight.to_vector();
  const auto refused = [&](const std::function<void()>& program) {
    const std::string message = message_of<DeviceError>([&] { plan(program); });
    CHECK(contains(message, device->str()));
    CHECK(contains(message, "dry reference"));
    return message;
  };
  CHECK(contains(refused([&] { mean(model(rand({2, 4}))).backward(); }), "'weight' f32 (3, 4)"));
  CHECK(contains(refused([&] { mean(model(x)).backward(); }), "f32 (2, 4)"));
  CHECK(contains(refused([&] { fill_(model.weight, 1); }), "'weight' f32 (3, 4)"));
  refused([&] { copy_into(zeros({3, 4}), model.weight); });
  refused([&] { model.weight.copy_from(std::vector<float>(12)); });
  refused([&] { model.weight.to_vector(); });
  refused([&] { reshape(model.weight, {12}); });
  const Tensor loss = mean(model(x));
  refused([&] { loss.backward(); });
  CHECK(model.weight.to_vector() == before);
  CHECK_FALSE(model.weight.grad().defined());
  // Values made inside are allowed, and afterwards everything is as before.
  const Forecast forecast = plan([] {
    Linear own(4, 3);
    mean(own(rand({2, 4}))).backward();
  });
  CHECK(forecast.memory.peak > 0);
  loss.backward();
  CHECK(model.weight.grad().defined());
}

TEST_CASE_FIXTURE(CpuDevice,
                  "misuse: errors of two devices name both" * doctest::test_suite("host")) {
  const auto other = Device::create(open_backend("reference"));
  const Tensor a = zeros({2, 3}), b = full({2, 3}, 1, DType::f32, other);
  a.impl().name = "here";
  CHECK(device->str() != other->str());
  const Tensor w = leaf(3);
  const std::function<void()> uses[] = {[&] { a + b; }, [&] { copy_into(a, b); },
                                        [&] { Tensor(a).copy_(b); },
                                        [&] {
                                          concat({a, b}, 0);
                                        },
                                        [&] { Tensor(a).set_grad(b); }};
  for (const auto& use : uses) {
    const std::string message = message_of<DeviceError>(use);
    CHECK(contains(message, device->str()));
    CHECK(contains(message, other->str()));
    CHECK(contains(message, "'here' f32 (2, 3)"));
  }
}

TEST_CASE_FIXTURE(CpuDevice, "misuse: integers that are too wide are refused, not cut" *
                                 doctest::test_suite("host")) {
  const std::vector<int64_t> values = {1, int64_t{1} << 32};
  CHECK(message_of<ValueError>([&] { tensor(values, {2}); }) ==
        "[tensor] values must fit i32, got 4294967296 at 1");
}

TEST_CASE("misuse: what predicts must not compute" * doctest::test_suite("host")) {
  int runs = 0;
  const auto count = [&] { ++runs; };
  CHECK(contains(message_of<ValueError>([&] { dry_run(open_backend("reference"), count); }),
                 "reference"));
  CHECK_THROWS_AS(Search([] { return open_backend("reference"); }, [&] { ++runs; }), ValueError);
  CHECK(runs == 0);
}

TEST_CASE_FIXTURE(CpuDevice, "misuse: scopes may end in any order" * doctest::test_suite("host")) {
  Tensor w = leaf(64);
  const Tensor expected = sum(tanh_chain(w));
  expected.backward();
  const std::vector<float> gradient = w.grad().to_vector();
  w.set_grad({});

  auto outer = std::make_unique<CheckpointScope>();
  Tensor x = tanh(w * 1.5f);
  auto inner = std::make_unique<CheckpointScope>();
  for (int i = 0; i < 5; ++i) x = tanh(std::move(x) * 1.5f);
  outer.reset();  // ends the inner one, too
  CHECK_FALSE(tape().in_segment());
  auto later = std::make_unique<CheckpointScope>();
  for (int i = 0; i < 6; ++i) x = tanh(std::move(x) * 1.5f);
  inner.reset();  // that segment has ended, so the later one stays open
  CHECK(tape().in_segment());
  later.reset();
  CHECK_FALSE(tape().in_segment());
  Tensor loss = sum(std::exchange(x, {}));
  loss.backward();
  CHECK(w.grad().to_vector() == gradient);
  loss = {};

  // A tape that is cleared assigns its segments' numbers again.
  auto stale = std::make_unique<CheckpointScope>();
  tape().clear();
  auto fresh = std::make_unique<CheckpointScope>();
  stale.reset();
  CHECK(tape().in_segment());
  fresh.reset();
  CHECK_FALSE(tape().in_segment());

  auto a = std::make_unique<NoGrad>(), b = std::make_unique<NoGrad>();
  a.reset();
  CHECK_FALSE(grad_enabled());
  b.reset();
  CHECK(grad_enabled());

  auto half = std::make_unique<Autocast>(DType::f16), full = std::make_unique<Autocast>(DType::f32);
  half.reset();
  CHECK(Autocast::input(w.detach()).dtype() == DType::f32);
  full.reset();
  CHECK(Autocast::input(cast(w.detach(), DType::f16)).dtype() == DType::f16);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "misuse: a budget inside another gives it back" * doctest::test_suite("host")) {
  const MemoryBudget outer(uint64_t{1} << 30);
  { const MemoryBudget inner(uint64_t{1} << 20); }
  CHECK(device->budget() == uint64_t{1} << 30);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "misuse: gradients that are set must fit" * doctest::test_suite("host")) {
  Tensor w = zeros({2, 3}).set_requires_grad();
  CHECK_THROWS_AS(w.set_grad(zeros({2, 3}, DType::f16)), DTypeError);
  CHECK_THROWS_AS(w.set_grad(zeros({2, 3}, DType::i32)), DTypeError);
  CHECK_THROWS_AS(w.set_grad(zeros({3, 2})), ShapeError);
  CHECK_FALSE(w.grad().defined());
  w.set_grad(ones({2, 3}));
  sum(w).backward();
  CHECK(w.grad().to_vector() == std::vector<float>(6, 2));
  w.set_grad(transpose(reshape(cast(arange(6), DType::f32), {3, 2}), 0, 1));
  sum(w).backward();
  CHECK(w.grad().to_vector() == std::vector<float>{1, 3, 5, 2, 4, 6});
  w.set_grad({});
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE_FIXTURE(CpuDevice, "misuse: verifying replays changes no figure of memory" *
                                 doctest::test_suite("host")) {
  struct Figures {
    uint64_t peak, live, naive;
    bool operator==(const Figures&) const = default;
  };
  const auto run = [&](bool verify) {
    tape().verify_replay(verify);
    device->reset_peak();
    Tensor w = leaf(300);
    Tensor x = reshape(w, {30, 10});
    {
      const auto segment = checkpoint();
      x = tanh(transpose(x, 0, 1));              // strided input
      x = expand(unsqueeze(x, 0), {3, 10, 30});  // strided outputs
      x = exp(slice(x, 2, 1, 30, 2));
    }
    sum(std::move(x)).backward();
    tape().verify_replay(false);
    const MemoryReport report = device->memory_report();
    return Figures{report.peak, report.live, report.naive};
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("misuse: indices out of range are named where that is asked for") {
  on_each_device([] {
    const Tensor table = rand({5, 4});
    const auto ints = [](std::vector<int32_t> values, const Shape& shape) {
      return tensor(values, shape);
    };
    const std::string bad[] = {message_of<ValueError>([&] {
                                 embedding(table, ints({0, 1, 2, 5}, {2, 2}));
                               }),
                               message_of<ValueError>([&] {
                                 embedding(table, transpose(ints({0, 1, -1, 4}, {2, 2}), 0, 1));
                               }),
                               message_of<ValueError>([&] {
                                 cross_entropy(rand({3, 5}), ints({0, -100, 7}, {3}));
                               }),
                               message_of<ValueError>([&] {
                                 tied_cross_entropy(rand({3, 4}), table, {}, ints({0, -1, 2}, {3}));
                               }),
                               message_of<ValueError>([&] {
                                 attention(rand({2, 1, 3, 8}), rand({2, 1, 3, 8}),
                                           rand({2, 1, 3, 8}), {}, {}, ints({3, 4}, {2}));
                               })};
    // The check was not asked for.
    for (const std::string& message : bad) CHECK(message == "nothing was thrown");
    // The result without the check is documented.
    const std::vector<float> y = embedding(table, ints({0, 5, -1}, {3})).to_vector();
    CHECK(!std::isnan(y[0]));
    CHECK(std::isnan(y[4]));
    CHECK(std::isnan(y[8]));
    CHECK(std::isnan(cross_entropy(rand({2, 5}), ints({0, 7}, {2})).item()));

    const Env env("REWIND_CHECK_INDICES", "1");
    const auto message = [&](const std::function<void()>& use) {
      return message_of<ValueError>(use);
    };
    CHECK(message([&] {
            embedding(table, ints({0, 1, 2, 5}, {2, 2}));
          }) == "[embedding] the index must be 0 to 4, got 5 at (1, 1) of i32 (2, 2)");
    CHECK(message([&] {
            embedding(table, transpose(ints({0, 1, -1, 4}, {2, 2}), 0, 1));
          }) == "[embedding] the index must be 0 to 4, got -1 at (0, 1) of i32 (2, 2)");
    CHECK(message([&] {
            cross_entropy(rand({3, 5}), ints({0, -100, 7}, {3}));
          }) == "[cross_entropy] the target must be 0 to 4 or -100, got 7 at (2) of i32 (3)");
    CHECK(contains(message([&] {
                     tied_cross_entropy(rand({3, 4}), table, {}, ints({0, -1, 2}, {3}));
                   }),
                   "[tied_cross_entropy] the target must be 0 to 4 or -100, got -1 at (1)"));
    CHECK(contains(message([&] {
                     attention(rand({2, 1, 3, 8}), rand({2, 1, 3, 8}), rand({2, 1, 3, 8}), {}, {},
                               ints({3, 4}, {2}));
                   }),
                   "[attention] the length must be 0 to 3, got 4 at (1)"));
    embedding(table, ints({0, 1, 2, 4}, {2, 2}));  // in range
    cross_entropy(rand({3, 5}), ints({0, -100, 4}, {3}));
  });
}

}  // namespace rw::test
