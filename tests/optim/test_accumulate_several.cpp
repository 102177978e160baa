// Several accumulating optimizers over one model or two: nothing leaks from one window into
// another.
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/fixtures/accumulation_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// A model of which two optimizers have a part each.
struct Halves {
  explicit Halves(uint64_t seed) : problem(seed) {
    for (size_t i = 0; i < problem.parameters.size(); ++i)
      (i % 2 == 0 ? even : odd).push_back(problem.parameters[i]);
  }
  RandomProblem problem;
  std::vector<Tensor> even, odd;
};

// A generator of numbers, and a discriminator that tells them from others.
struct Adversaries {
  Tensor g = tensor(some_values(12, 1), {3, 4}).set_requires_grad();
  Tensor d = tensor(some_values(3, 2), {1, 3}).set_requires_grad();

  Tensor made(int i) const { return tanh(linear(tensor(some_values(20, 10 + i), {5, 4}), g)); }
  Tensor told(const Tensor& x) const { return linear(x, d); }
  Tensor loss_d(int i) const {  // reaches the generator, too
    const Tensor real = tensor(some_values(15, 50 + i), {5, 3});
    return mean(square(told(real) - 1.0f)) + mean(square(told(made(i))));
  }
  Tensor loss_g(int i) const { return mean(square(told(made(i)) - 1.0f)); }
};

enum class Alternation {
  frozen,     // the other network collects no gradients
  zeroed,     // it does, and zero_grad() drops them
  untouched,  // nobody drops them
};

// Returns both networks after some windows of different lengths.
Values alternate(Alternation how, uint32_t n_d, uint32_t n_g) {
  Adversaries net;
  Accumulate d(Adam({net.d}, {.lr = 0.05f}), n_d), g(Adam({net.g}, {.lr = 0.05f}), n_g);
  for (int i = 0; i < 12; ++i) {
    const auto turn = [&](Accumulate& own, Tensor& other, auto loss) {
      if (how == Alternation::frozen) other.set_requires_grad(false);
      if (how == Alternation::zeroed) own.zero_grad();
      own.backward(loss(), static_cast<float>(1 + i % 3));
      own.step();
      other.set_requires_grad();
    };
    turn(d, net.g, [&] { return net.loss_d(i); });
    turn(g, net.d, [&] { return net.loss_g(i); });
  }
  CHECK(d.updates() == 12 / n_d);
  CHECK(g.updates() == 12 / n_g);
  return all_values({net.d, net.g});
}

}  // namespace

TEST_CASE("accumulate several: networks in turns do not reach into each other's windows") {
  on_each_device([] {
    const std::pair<uint32_t, uint32_t> lengths[] = {{1, 1}, {2, 2}, {3, 2}, {1, 4}, {4, 1}};
    for (const auto& [n_d, n_g] : lengths) {
      CAPTURE(n_d);
      CAPTURE(n_g);
      const Values alone = alternate(Alternation::frozen, n_d, n_g);
      CHECK(alternate(Alternation::zeroed, n_d, n_g) == alone);
      CHECK(alternate(Alternation::untouched, n_d, n_g) == alone);
    }
  });
}

TEST_CASE("accumulate several: what others bring is the caller's, and zero_grad() drops it") {
  on_each_device([] {
    Tensor w = parameter({1, 2}), v = parameter({3});
    Accumulate one(SGD({w}, {.lr = 1}), 3), other(SGD({v}, {.lr = 1}), 3);
    one.backward(loss_with(w, {1, 2}));
    CHECK(w.grad().to_vector() == Values{1, 2});  // until step() those of the caller, too
    one.step();
    CHECK_FALSE(w.grad().defined());
    other.backward(loss_with(v, {1}) + loss_with(w, {100, 100}));
    other.step();
    CHECK(w.grad().to_vector() == Values{100, 100});
    one.zero_grad();
    CHECK_FALSE(w.grad().defined());
    loss_with(w, {1000, 1000}).backward();
    one.backward(loss_with(w, {3, 4}));
    CHECK(w.grad().to_vector() == Values{4, 6});
    one.step();
    CHECK(one.flush());
    CHECK(w.to_vector() == Values{1 - 2, 2 - 3});
  });
}

TEST_CASE("accumulate several: however gradients are added up, those of others join nowhere") {
  on_each_device([] {
    for (const std::string kind : {"in place", "judged", "16 bits"}) {
      CAPTURE(kind);
      Tensor w = parameter({1}), v = parameter({1});
      Accumulate optimizer(SGD({w, v}, {.lr = 1}), 2);
      if (kind == "judged") optimizer.set_overflow(Accumulate::Overflow::voids_micro_batch);
      if (kind == "16 bits") optimizer.set_buffer(DType::bf16);
      optimizer.backward(loss_with(w, {1}));
      optimizer.step();
      CHECK_FALSE(w.grad().defined());
      (loss_with(w, {8}) + loss_with(v, {8})).backward();
      optimizer.backward(loss_with(w, {3}));
      optimizer.step();
      CHECK(w.item() == 1 - 2);
      CHECK(v.item() == 1);
    }
  });
}

// Rates that are powers of two apart compensate for the windows' lengths exactly.
TEST_CASE("accumulate several: one backward pass for two parts of a model") {
  on_each_device([] {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      CAPTURE(seed);
      Halves plain(seed), both(seed);
      const SGDOptions slow{.lr = 0.05f}, fast{.lr = 0.1f};
      SGD even(plain.even, fast), odd(plain.odd, slow);
      Accumulate two(SGD(both.even, slow), 2), four(SGD(both.odd, slow), 4);
      for (auto* o : {static_cast<Optimizer*>(&even), static_cast<Optimizer*>(&odd),
                      static_cast<Optimizer*>(&two), static_cast<Optimizer*>(&four)})
        o->set_scaler(LossScaler::fixed(64));
      for (int64_t i = 0; i < 12; ++i) {
        odd.backward(plain.problem.loss(4 * i, 4 * i + 4), 0.25f);
        // A weight of 0 says that its gradients carry the scale.
        even.backward(plain.problem.loss(0, 1), 0);
        if (i % 2 == 1) {
          even.step();
          even.zero_grad();
        }
        if (i % 4 == 3) {
          odd.step();
          odd.zero_grad();
        }
        Accumulate::backward({&two, &four}, both.problem.loss(4 * i, 4 * i + 4), 7);
        CHECK(two.step() == (i % 2 == 1));
        CHECK(four.step() == (i % 4 == 3));
      }
      CHECK(both.problem.values() == plain.problem.values());
      CHECK(two.updates() == 6);
      CHECK(four.updates() == 3);
    }
  });
}

TEST_CASE("accumulate several: both go on from inside their windows bit for bit") {
  on_each_device([] {
    const auto train = [](int stop) {
      Halves net(3);
      const auto made = [](const std::vector<Tensor>& p, uint32_t n) {
        return std::make_unique<Accumulate>(Adam(p, {.lr = 0.01f}), n);
      };
      auto three = made(net.even, 3), five = made(net.odd, 5);
      for (int i = 0; i < 15; ++i) {
        Accumulate::backward({three.get(), five.get()}, net.problem.loss(3 * i, 3 * i + 3),
                             static_cast<float>(1 + i % 4));
        three->step();
        five->step();
        if (i + 1 != stop) continue;
        const auto first = copied(three->state()), second = copied(five->state());
        three.reset();
        five.reset();
        three = made(net.even, 3);
        five = made(net.odd, 5);
        three->load_state(first);
        five->load_state(second);
        CHECK(three->position() == static_cast<uint32_t>(stop % 3));
        CHECK(five->position() == static_cast<uint32_t>(stop % 5));
      }
      return net.problem.values();
    };
    const Values whole = train(-1);
    for (const int stop : {1, 2, 3, 4, 5, 8, 14}) {
      CAPTURE(stop);
      CHECK(train(stop) == whole);
    }
  });
}

TEST_CASE("accumulate several: mistakes are typed errors" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  Tensor w = parameter({1}), v = parameter({1});
  Accumulate a(SGD({w}), 2), b(SGD({v}), 2);
  const auto loss = [&](float x = 1) { return loss_with(w, {x}) + loss_with(v, {x}); };
  CHECK_THROWS_AS(Accumulate::backward({}, loss()), ValueError);
  CHECK_THROWS_AS(Accumulate::backward({&a, &a}, loss()), ValueError);
  b.set_scaler(LossScaler::fixed(2));
  CHECK_THROWS_WITH_AS(Accumulate::backward({&a, &b}, loss()), doctest::Contains("one loss scale"),
                       AutogradError);
  a.set_scaler(LossScaler::dynamic());
  b.set_scaler(LossScaler::dynamic());
  CHECK_THROWS_AS(Accumulate::backward({&a, &b}, loss()), AutogradError);
  a.set_scaler(LossScaler::none());
  b.set_scaler(LossScaler::none());
  a.backward(loss(), 4);
  a.step();
  b.backward(loss(), 2);
  b.step();
  CHECK_THROWS_WITH_AS(Accumulate::backward({&a, &b}, loss(), 2),
                       doctest::Contains("first weights are 4 and 2"), AutogradError);
  CHECK(a.position() == 1);  // refused before anything was done
  CHECK(b.position() == 1);
}

TEST_CASE("accumulate several: a backward pass that throws takes the window with it, no more") {
  on_each_device([] {
    Tensor w = parameter({0}), v = parameter({0});
    Accumulate a(SGD({w}, {.lr = 1}), 3), b(SGD({v}, {.lr = 1}), 2);
    a.backward(loss_with(w, {50}));
    a.step();
    Tensor bad = w * 1.0f;
    bad.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("no gradient"); });
    CHECK_THROWS_AS(Accumulate::backward({&a, &b}, sum(bad) + loss_with(v, {1})),
                    std::runtime_error);
    CHECK(a.position() == 0);
    CHECK_FALSE(a.flush());
    CHECK_FALSE(w.grad().defined());
    for (int i = 0; i < 3; ++i) {
      a.backward(loss_with(w, {2}));
      a.step();
    }
    CHECK(w.item() == -2);
    Tensor other = w * 1.0f;
    CHECK_THROWS_AS(a.run_together([&](uint32_t i) {
      if (i == 1) throw std::runtime_error("no forward");
      return MicroBatch{loss_with(w, {1}), 1};
    }),
                    std::runtime_error);
    CHECK_FALSE(a.flush());
    CHECK(w.item() == -2);
  });
}
