// Each parameter has its own number of updates, as in PyTorch: one whose first gradient comes late
// begins as in an optimizer of its own. Norms of any size, and counts that f32 does not hold.
#include <cmath>

#include "optim/accumulation/accumulate.h"
#include "optim/accumulation/adama.h"
#include "optim/accumulation/fused_backward.h"
#include "optim/adafactor.h"
#include "optim/adagrad.h"
#include "optim/adam.h"
#include "optim/adam8bit.h"
#include "optim/ema.h"
#include "optim/lamb.h"
#include "optim/lookahead.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "shaders/params.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/rank_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

using MakeOne = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)>;

template <class O, class Options>
std::pair<std::string, MakeOne> own_maker(const char* name, const Options& options) {
  return {name, [=](std::vector<Tensor> p) { return std::make_unique<O>(std::move(p), options); }};
}

template <class O, class Options>
std::pair<std::string, MakeOne> fused_own_maker(const char* name, const Options& options,
                                                FusedPasses passes) {
  return {name, [=](std::vector<Tensor> p) {
            return std::make_unique<FusedBackward>(O(std::move(p), options), passes);
          }};
}

// Every rule that counts updates, and every way to call it.
std::vector<std::pair<std::string, MakeOne>> counting_makers() {
  const AdamOptions adam{.lr = 0.1f, .weight_decay = 0.01f};
  const AdamWOptions adamw{.lr = 0.1f, .amsgrad = true};
  return {
      own_maker<SGD>("sgd", SGDOptions{.lr = 0.1f, .momentum = 0.9f, .dampening = 0.5f}),
      own_maker<Adam>("adam", adam),
      own_maker<AdamW>("amsgrad", adamw),
      own_maker<Adam8bit>("adam8bit", adam),
      own_maker<Adagrad>("adagrad", AdagradOptions{.lr = 0.1f, .lr_decay = 0.3f}),
      own_maker<Adafactor>("adafactor", AdafactorOptions{.lr = 0.9f}),
      own_maker<Lamb>("lamb", LambOptions{.lr = 0.1f}),
      {"muon's others",
       [](std::vector<Tensor> p) {
         return std::make_unique<Muon>(
             std::vector<Tensor>{tensor({1, 2}, {1, 2}).set_requires_grad()}, MuonOptions{},
             std::move(p), AdamWOptions{.lr = 0.1f});
       }},
      {"accumulate",
       [=](std::vector<Tensor> p) {
         return std::make_unique<Accumulate>(Adam(std::move(p), adam), 1);
       }},
      {"adama",
       [](std::vector<Tensor> p) {
         return std::make_unique<AdamA>(std::move(p), 1, AdamAOptions{.lr = 0.1f});
       }},
      fused_own_maker<Adam>("fused", adam, FusedPasses::one),
      fused_own_maker<SGD>("fused sgd", SGDOptions{.lr = 0.1f, .momentum = 0.9f, .dampening = 0.5f},
                           FusedPasses::one),
      fused_own_maker<Adam>("fused, two passes", adam, FusedPasses::two),
  };
}

constexpr int own_size = 4096;  // 8-bit Adam keeps states of 8 bits from here on

Tensor own_parameter(const char* name) {
  Tensor w = tensor(some_values(own_size, 5), {64, 64}).set_requires_grad();
  w.impl().name = name;
  return w;
}

Values own_gradient(int t) {
  return some_values(own_size, 3 * t + 1);
}

// Steps first_step..end; `late` has gradients from step `late_from` on.
void own_steps(Optimizer& optimizer, const Tensor& early, const Tensor& late, int first, int end,
               int late_from) {
  for (int t = first; t < end; ++t) {
    Tensor loss = loss_with(early, own_gradient(t));
    if (t >= late_from) loss = loss + loss_with(late, own_gradient(t));
    optimizer.zero_grad();
    optimizer.backward(loss);
    optimizer.step();
  }
}

constexpr int late_from = 5, own_end = 8;

// The late parameter's values in an optimizer of its own.
Values alone(const MakeOne& make) {
  const Tensor w = own_parameter("late");
  const auto optimizer = make({w});
  for (int t = late_from; t < own_end; ++t) {
    optimizer->zero_grad();
    optimizer->backward(loss_with(w, own_gradient(t)));
    optimizer->step();
  }
  return w.to_vector();
}

// A state as an older version saves it.
Optimizer::NamedState without_counts(Optimizer::NamedState state) {
  std::erase_if(state, [](const auto& one) { return one.first.starts_with("control."); });
  return state;
}

}  // namespace

TEST_CASE("own updates: a late parameter begins as one alone") {
  on_each_device([] {
    for (const auto& [name, make] : counting_makers()) {
      CAPTURE(name);
      const std::vector<double> expected = doubles(alone(make));
      const Tensor early = own_parameter("early"), late = own_parameter("late");
      const auto optimizer = make({early, late});
      own_steps(*optimizer, early, late, 0, own_end, late_from);
      CHECK(largest_difference(late.to_vector(), expected) < 1e-6);
      CHECK(optimizer->updates() == own_end);
    }
  });
}

TEST_CASE("own updates: saved and loaded before the late gradient, and in older states") {
  on_each_device([] {
    for (const auto& [name, make] : counting_makers()) {
      CAPTURE(name);
      const std::vector<double> expected = doubles(alone(make));
      const Tensor early = own_parameter("early"), late = own_parameter("late");
      const auto first = make({early, late});
      own_steps(*first, early, late, 0, late_from - 1, late_from);
      Tensor early2 = own_parameter("early"), late2 = own_parameter("late");
      const auto second = make({early2, late2});
      own_steps(*second, early2, late2, 0, 2, 1);  // counts that loading replaces
      const auto state = copied(first->state());
      early2.copy_(early.detach());
      late2.copy_(late.detach());
      second->load_state(state);
      own_steps(*second, early2, late2, late_from - 1, own_end, late_from);
      CHECK(largest_difference(late2.to_vector(), expected) < 1e-6);

      // An older state counts for all parameters together.
      second->load_state(without_counts(state));
      CHECK(second->updates() == late_from - 1);
      const auto same = [&](const auto& one) { return one.first.starts_with("control."); };
      CHECK(std::ranges::none_of(second->state(), same));
    }
  });
}

TEST_CASE("own updates: an update that is skipped is not missed") {
  on_each_device([] {
    const Tensor early = own_parameter("early"), late = own_parameter("late");
    const MakeOne make = own_maker<Adam>("adam", AdamOptions{.lr = 0.1f}).second;
    const auto optimizer = make({early, late});
    own_steps(*optimizer, early, late, 0, 2, late_from);
    Values gradient = own_gradient(2);
    gradient[7] = infinity;
    one_step(*optimizer, early, gradient);
    CHECK(optimizer->skipped() == 1);
    own_steps(*optimizer, early, late, 3, own_end, late_from);
    CHECK(largest_difference(late.to_vector(), doubles(alone(make))) < 1e-6);
  });
}

TEST_CASE("own updates: windows of several micro-batches") {
  on_each_device([] {
    for (const bool is_adama : {false, true}) {
      const auto make = [&](std::vector<Tensor> p) -> std::unique_ptr<Optimizer> {
        if (is_adama) return std::make_unique<AdamA>(std::move(p), 2, AdamAOptions{.lr = 0.1f});
        return std::make_unique<Accumulate>(Adam(std::move(p), {.lr = 0.1f}), 2);
      };
      // The late parameter has a gradient in the second micro-batch of a window only.
      const auto run = [&](Optimizer& optimizer, const Tensor& early, const Tensor& late) {
        for (int t = early ? 0 : 6; t < 10; ++t) {
          const bool is_late = t >= 6 && t % 2 == 1;
          Tensor loss = early ? loss_with(early, own_gradient(t)) : Tensor();
          if (is_late && loss) loss = loss + loss_with(late, own_gradient(t));
          if (!loss) loss = loss_with(late, is_late ? own_gradient(t) : Values(own_size));
          optimizer.backward(loss);
          optimizer.step();
          optimizer.zero_grad();
        }
        return late.to_vector();
      };
      const Tensor early = own_parameter("early"), late = own_parameter("late"),
                   lone = own_parameter("late");
      const auto both = make({early, late}), one = make({lone});
      const Values expected = run(*one, Tensor(), lone);
      CHECK(largest_difference(run(*both, early, late), doubles(expected)) < 1e-6);
    }
  });
}

TEST_CASE("own updates: norms of any size") {
  on_each_device([] {
    // A larger norm has a factor that is a denormal, which a GPU may flush.
    for (const float size : {1e20f, 1e37f, 1.0f, 1e-25f})
      for (const bool is_fused : {false, true}) {
        CAPTURE(size);
        const Tensor a = parameter({1, 1}), b = parameter({1, 1, 1});
        std::unique_ptr<Optimizer> optimizer =
            std::make_unique<SGD>(std::vector{a, b}, SGDOptions{.lr = 1});
        optimizer->set_max_norm(size < 1 ? size : 1.0f);
        if (is_fused)
          optimizer = std::make_unique<FusedBackward>(std::move(static_cast<SGD&>(*optimizer)),
                                                      FusedPasses::two);
        const auto loss = [&] {
          return loss_with(a, {3 * size, 0}) + loss_with(b, {0, -4 * size, 1e-9f * size});
        };
        if (!is_fused) {
          loss().backward();
          CHECK(grad_norm({a, b}) == doctest::Approx(5 * size).epsilon(1e-6));
          optimizer->zero_grad();
        }
        optimizer->backward(loss());
        optimizer->step();
        CHECK(optimizer->grad_norm() == doctest::Approx(5 * size).epsilon(1e-6));
        if (size < 1) continue;  // below the 1e-6 that is added to the norm, nothing is clipped
        CHECK(a.to_vector()[0] == doctest::Approx(1 - 0.6).epsilon(1e-5));
        CHECK(b.to_vector()[1] == doctest::Approx(1 + 0.8).epsilon(1e-5));
      }
  });
}

TEST_CASE("own updates: counts go on where f32 does not") {
  on_each_device([] {
    const Tensor early = own_parameter("early"), late = own_parameter("late");
    const MakeOne make = own_maker<Adam>("adam", AdamOptions{.lr = 0.1f}).second;
    const auto optimizer = make({early, late});
    auto state = copied(optimizer->state());
    Values control = state[0].second.to_vector();
    control[STATE_UPDATES] = control[STATE_SKIPPED] = 16777216;  // as an older version ends
    state[0].second.copy_from(std::span<const float>(control));
    optimizer->load_state(state);
    own_steps(*optimizer, early, late, 0, late_from, late_from);
    CHECK(optimizer->updates() == 16777216 + late_from);
    Values gradient = own_gradient(0);
    gradient[0] = infinity;
    one_step(*optimizer, early, gradient);
    CHECK(optimizer->skipped() == 16777217);
    CHECK(optimizer->counts().updates == 16777216 + late_from);
    CHECK_THROWS_WITH_AS(
        Ema{*optimizer},
        "[ema] an average must begin within the first 16777216 updates, got 16777221", ValueError);
    CHECK_THROWS_AS(Lookahead{*optimizer}, ValueError);

    const auto second = make({own_parameter("early"), own_parameter("late")});
    second->load_state(copied(optimizer->state()));
    CHECK(second->updates() == 16777216 + late_from);
    second->load_state(
        without_counts(copied(make({own_parameter("early"), own_parameter("late")})->state())));
    CHECK(second->updates() == 0);
  });
}

TEST_CASE("own updates: a parameter that misses as many as f32 does not count") {
  on_each_device([] {
    const Tensor early = own_parameter("early"), late = own_parameter("late");
    const MakeOne make = own_maker<Adam>("adam", AdamOptions{.lr = 0.1f}).second;
    const auto optimizer = make({early, late});
    own_steps(*optimizer, early, late, 0, 1, late_from);
    auto state = copied(optimizer->state());
    for (auto& [name, t] : state) {
      Values values = t.to_vector();
      if (name == "control") values[STATE_UPDATES] = 16777215;
      if (name == "control.missed.late") values[0] = 16777215;
      t.copy_from(std::span<const float>(values));
    }
    optimizer->load_state(state);
    own_steps(*optimizer, early, late, 1, own_end, late_from);
    CHECK(optimizer->updates() == 16777215 + own_end - 1);
    CHECK(largest_difference(late.to_vector(), doubles(alone(make))) < 1e-6);
  });
}

TEST_CASE("own updates: a parameter without elements misses none, and nothing is done to it") {
  on_each_device([] {
    for (const auto& [name, make] : counting_makers()) {
      CAPTURE(name);
      const Tensor early = own_parameter("early"), late = own_parameter("late");
      Tensor none = zeros({0, 4}).set_requires_grad();
      none.impl().name = "none";
      const auto optimizer = make({early, none, late});
      for (int t = 0; t < 2; ++t) {
        optimizer->zero_grad();
        optimizer->backward(loss_with(early, own_gradient(t)) + sum(none));
        CHECK(optimizer->step());
      }
      for (const auto& [part, value] : optimizer->state()) CHECK(part != "control.missed.none");
    }
    const Tensor matrix = tensor({1, 2, 3, 4}, {2, 2}).set_requires_grad();
    const Tensor none = zeros({0, 4}).set_requires_grad();
    Muon muon({none, matrix});
    muon.backward(sum(square(matrix)) + sum(none));
    CHECK(muon.step());
    CHECK(matrix.to_vector() != Values{1, 2, 3, 4});
  });
}
