// RMSprop, Adagrad, AMSGrad, Adafactor, Muon against PyTorch's numbers, Lion against its paper; and
// behaviour that all of them share: accumulation, loss scaling, skipped updates, state, predicted
// memory.
#include <cmath>

#include "optim/accumulation/accumulate.h"
#include "optim/adafactor.h"
#include "optim/adagrad.h"
#include "optim/adam8bit.h"
#include "optim/ema.h"
#include "optim/lion.h"
#include "optim/lookahead.h"
#include "optim/muon.h"
#include "optim/rmsprop.h"
#include "optim/sgd.h"
#include "tests/fixtures/forecast_fixture.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

namespace optimizer_goldens {
#include "tests/goldens/optimizers.inc"
}

constexpr uint32_t micro_batches = 2;

Tensor shaped(const Shape& shape, int seed) {
  Tensor w = tensor(some_values(static_cast<int>(shape.numel()), seed), shape).set_requires_grad();
  w.impl().name = "p" + std::to_string(seed);
  return w;
}

using Parameters = std::vector<Tensor>;

Parameters parameters_of_shapes(const std::vector<Shape>& shapes) {
  Parameters all;
  for (const Shape& shape : shapes) all.push_back(shaped(shape, static_cast<int>(all.size())));
  return all;
}

// Returns a loss whose gradients are `factor` times those of step t (make_optimizer_goldens.py), or
// not finite.
Tensor golden_loss(const Parameters& parameters, int t, float factor = 1, bool overflows = false) {
  Tensor total;
  for (size_t k = 0; k < parameters.size(); ++k) {
    Values gradient = some_values(static_cast<int>(parameters[k].numel()), 7 * int(k) + t + 1);
    for (float& g : gradient) g *= factor;
    if (overflows) gradient[0] = infinity;
    const Tensor part = loss_with(parameters[k], gradient);
    total = total ? total + part : part;
  }
  return total;
}

void golden_step(Optimizer& optimizer, const Parameters& parameters, int t,
                 bool overflows = false) {
  optimizer.zero_grad();
  optimizer.backward(golden_loss(parameters, t, 1, overflows));
  optimizer.step();
}

// Makes an optimizer by name from parameters. Those of `torch` have golden values after 20 steps.
struct GoldenMaker {
  std::string name;
  std::function<std::unique_ptr<Optimizer>(Parameters)> make;
  const std::vector<double>* torch = nullptr;
  std::vector<Shape> shapes = {{3, 5}, {7}};
  std::function<std::unique_ptr<Optimizer>(Parameters)> accumulating = {};
};

template <class O, class Options>
GoldenMaker golden_maker(const char* name, const Options& options,
                         const std::vector<double>* torch = nullptr,
                         std::vector<Shape> shapes = {{3, 5}, {7}}) {
  return {name, [=](Parameters p) { return std::make_unique<O>(std::move(p), options); }, torch,
          std::move(shapes),
          [=](Parameters p) {
            return std::make_unique<Accumulate>(O(std::move(p), options), micro_batches);
          }};
}

const std::vector<GoldenMaker>& golden_makers() {
  const std::vector<Shape> matrices = {{3, 5}, {9, 4}};
  static const std::vector<GoldenMaker> all = {
      golden_maker<RMSprop>("rmsprop", RMSpropOptions{}, &optimizer_goldens::rmsprop),
      golden_maker<RMSprop>("rmsprop, decay",
                            RMSpropOptions{.lr = 0.02f, .alpha = 0.9f, .weight_decay = 0.1f},
                            &optimizer_goldens::rmsprop_decay),
      golden_maker<RMSprop>("rmsprop, momentum", RMSpropOptions{.momentum = 0.9f},
                            &optimizer_goldens::rmsprop_momentum),
      golden_maker<RMSprop>("rmsprop, centered", RMSpropOptions{.eps = 1e-3f, .centered = true},
                            &optimizer_goldens::rmsprop_centered),
      golden_maker<RMSprop>("rmsprop, all",
                            RMSpropOptions{.alpha = 0.95f,
                                           .eps = 1e-3f,
                                           .weight_decay = 0.05f,
                                           .momentum = 0.8f,
                                           .centered = true},
                            &optimizer_goldens::rmsprop_all),
      golden_maker<Adagrad>("adagrad", AdagradOptions{}, &optimizer_goldens::adagrad),
      golden_maker<Adagrad>("adagrad, all",
                            AdagradOptions{.lr = 0.1f,
                                           .lr_decay = 0.1f,
                                           .weight_decay = 0.1f,
                                           .initial_accumulator_value = 0.5f},
                            &optimizer_goldens::adagrad_all),
      golden_maker<Adam>(
          "amsgrad", AdamOptions{.lr = 0.01f, .beta2 = 0.5f, .weight_decay = 0.1f, .amsgrad = true},
          &optimizer_goldens::amsgrad),
      golden_maker<AdamW>(
          "amsgrad, decoupled",
          AdamWOptions{.lr = 0.01f, .beta2 = 0.5f, .weight_decay = 0.1f, .amsgrad = true},
          &optimizer_goldens::amsgrad_decoupled),
      golden_maker<Adafactor>("adafactor", AdafactorOptions{}, &optimizer_goldens::adafactor),
      golden_maker<Adafactor>("adafactor, all",
                              AdafactorOptions{.lr = 0.3f,
                                               .beta2_decay = -0.6f,
                                               .eps1 = 1e-4f,
                                               .eps2 = 1e-2f,
                                               .clip = 1.05f,
                                               .weight_decay = 0.1f},
                              &optimizer_goldens::adafactor_all),
      golden_maker<Adafactor>("adafactor, several matrices", AdafactorOptions{.lr = 0.1f},
                              &optimizer_goldens::adafactor_batches,
                              {{2, 3, 4, 5}, {2, 1}, {1, 9}}),
      golden_maker<Muon>("muon", MuonOptions{}, &optimizer_goldens::muon, matrices),
      golden_maker<Muon>("muon, plain",
                         MuonOptions{.lr = 0.02f,
                                     .weight_decay = 0.2f,
                                     .momentum = 0.9f,
                                     .nesterov = false,
                                     .ns_steps = 3},
                         &optimizer_goldens::muon_plain, matrices),
      golden_maker<Muon>("muon, rates of AdamW",
                         MuonOptions{.lr = 0.02f, .adjust_lr = MuonRate::match_rms_adamw},
                         &optimizer_goldens::muon_match, matrices),
      golden_maker<Lion>("lion", LionOptions{.lr = 0.01f, .weight_decay = 0.1f}),
      golden_maker<Adam8bit>("adam8bit", AdamOptions{.lr = 0.01f, .weight_decay = 0.1f}, nullptr,
                             {{65, 70}, {7}, {4099}}),
      golden_maker<AdamW8bit>("adamw8bit", AdamWOptions{.lr = 0.01f}, nullptr, {{7}, {4096}}),
  };
  return all;
}

// Lion's paper, algorithm 2.
std::vector<double> lion_reference(const LionOptions& o, const Values& start, int steps, int seed) {
  std::vector<double> x(start.begin(), start.end()), m(start.size());
  for (int t = 0; t < steps; ++t) {
    const Values g = some_values(static_cast<int>(start.size()), seed + t + 1);
    for (size_t i = 0; i < x.size(); ++i) {
      const double c = o.beta1 * m[i] + (1.0 - o.beta1) * g[i];
      const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
      x[i] -= o.lr * (sign + o.weight_decay * x[i]);
      m[i] = o.beta2 * m[i] + (1.0 - o.beta2) * g[i];
    }
  }
  return x;
}

}  // namespace

TEST_CASE("more optimizers: PyTorch's numbers after 20 steps") {
  on_each_device([] {
    for (const GoldenMaker& m : golden_makers()) {
      if (!m.torch) continue;
      CAPTURE(m.name);
      const Parameters parameters = parameters_of_shapes(m.shapes);
      const auto optimizer = m.make(parameters);
      for (int t = 0; t < 20; ++t) golden_step(*optimizer, parameters, t);
      CHECK(largest_difference(all_values(parameters), *m.torch) < 2e-5);
    }
  });
}

TEST_CASE("lion: the paper's rule") {
  on_each_device([] {
    const LionOptions options{.lr = 0.01f, .weight_decay = 0.1f};
    const Parameters p = {shaped({21}, 0)};
    const Values start = p[0].to_vector();
    Lion lion(p, options);
    for (int t = 0; t < 20; ++t) golden_step(lion, p, t);
    CHECK(largest_difference(p[0].to_vector(), lion_reference(options, start, 20, 0)) < 2e-6);
  });
}

TEST_CASE("more optimizers: accumulated halves, loss scaling and skipped updates change no bit") {
  on_each_device([] {
    for (const GoldenMaker& m : golden_makers()) {
      CAPTURE(m.name);
      const Parameters plain = parameters_of_shapes(m.shapes),
                       other = parameters_of_shapes(m.shapes);
      const auto optimizer = m.make(plain), accumulated = m.accumulating(other);
      accumulated->set_scaler(LossScaler::dynamic(1024, 2, 0.5f, 3));
      for (int t = 0; t < 20; ++t) {
        golden_step(*optimizer, plain, t);
        if (t == 5) {  // a window whose second micro-batch overflows
          const std::vector<Values> state = state_of(*accumulated);
          const Values before = all_values(other);
          for (uint32_t i = 0; i < micro_batches; ++i) golden_step(*accumulated, other, t, i == 1);
          CHECK(all_values(other) == before);
          CHECK(state_of(*accumulated) == state);
        }
        for (uint32_t i = 0; i < micro_batches; ++i) golden_step(*accumulated, other, t);
      }
      CHECK(accumulated->skipped() == 1);
      CHECK(accumulated->updates() == 20);
      CHECK(all_values(plain) == all_values(other));
    }
  });
}

TEST_CASE("more optimizers: saved state continues to the bit") {
  on_each_device([] {
    for (const GoldenMaker& m : golden_makers()) {
      CAPTURE(m.name);
      const Parameters a = parameters_of_shapes(m.shapes), b = parameters_of_shapes(m.shapes);
      const auto first = m.make(a), second = m.make(b);
      for (int t = 0; t < 4; ++t) golden_step(*first, a, t);
      for (size_t k = 0; k < a.size(); ++k) Tensor(b[k]).copy_(a[k].detach());
      second->load_state(first->state());
      for (int t = 4; t < 7; ++t) {
        golden_step(*first, a, t);
        golden_step(*second, b, t);
      }
      CHECK(all_values(a) == all_values(b));
      CHECK(state_of(*first) == state_of(*second));
    }
  });
}

TEST_CASE("more optimizers: parameters without a gradient stay as they are") {
  on_each_device([] {
    for (const GoldenMaker& m : golden_makers()) {
      CAPTURE(m.name);
      const Parameters p = parameters_of_shapes(m.shapes);
      const auto optimizer = m.make(p);
      const Values before = p.back().to_vector();
      for (int t = 0; t < 2; ++t) golden_step(*optimizer, {p[0]}, t);
      CHECK(p.back().to_vector() == before);
      CHECK(p[0].to_vector() != shaped(m.shapes[0], 0).to_vector());
    }
  });
}

TEST_CASE("more optimizers: dry runs predict their memory to the byte") {
  on_each_device([] {
    for (const GoldenMaker& m : golden_makers()) {
      CAPTURE(m.name);
      const auto program = [&m] {
        const Parameters p = parameters_of_shapes({{64, 40}, {130, 7}, {3, 4, 5}});
        const auto optimizer = m.make(p);
        Ema ema(*optimizer);
        for (int t = 0; t < 4; ++t) {
          optimizer->zero_grad();
          Tensor loss;
          for (const Tensor& w : p) loss = loss ? loss + sum(square(w)) : sum(square(w));
          optimizer->backward(loss);
          optimizer->step();
        }
      };
      check_forecast(program);
    }
  });
}

TEST_CASE("adafactor: the state of a matrix is its rows and columns") {
  on_each_device([] {
    const auto bytes = [] {
      const auto& by = default_device()->memory_report().live_by_purpose;
      return by[static_cast<int>(Purpose::optimizer)];
    };
    const uint64_t before = bytes();
    const Parameters p = {shaped({300, 200}, 0), shaped({200}, 1)};
    Adafactor adafactor(p);
    CHECK(bytes() - before < 300 * 200);  // Adam: 480000
    const Optimizer::NamedState state = adafactor.state();
    REQUIRE(state.size() == 4);
    CHECK(state[1].first == "row_var.p0");
    CHECK(state[1].second.shape() == Shape{300, 1});
    CHECK(state[2].first == "col_var.p0");
    CHECK(state[2].second.shape() == Shape{1, 200});
    CHECK(state[3].first == "variance.p1");
    CHECK(state[3].second.shape() == Shape{200});
  });
}

TEST_CASE("adafactor: large matrices on each device alike, without the relative parts") {
  std::vector<Values> found;
  on_each_device([&] {
    const Parameters p = {shaped({150, 131}, 0), shaped({40, 900}, 1), shaped({20001}, 2)};
    Adafactor adafactor(p, {.lr = 0.1f, .relative_step = false, .scale_parameter = false});
    for (int t = 0; t < 3; ++t) golden_step(adafactor, p, t);
    found.push_back(all_values(p));
  });
  for (const Values& other : found)
    CHECK(largest_difference(other, {found[0].begin(), found[0].end()}) < 2e-5);
}

TEST_CASE("adafactor: each of its switches alone, against plain arithmetic") {
  on_each_device([] {
    for (const bool relative : {false, true})
      for (const bool scaled : {false, true}) {
        const Parameters p = {shaped({7}, 1)};
        std::vector<double> w, v(7);
        for (const float x : p[0].to_vector()) w.push_back(x);
        const auto rms = [](const std::vector<double>& x) {
          double squares = 0;
          for (const double value : x) squares += value * value;
          return std::sqrt(squares / static_cast<double>(x.size()));
        };
        Adafactor adafactor(p, {.lr = 0.6f, .relative_step = relative, .scale_parameter = scaled});
        for (int t = 1; t <= 4; ++t) {
          std::vector<float> g;
          std::vector<double> update;
          const double rate = (relative ? std::min(0.6, 1 / std::sqrt(t)) : 0.6) *
                              (scaled ? std::max(1e-3, rms(w)) : 1);
          for (size_t i = 0; i < 7; ++i) {
            g.push_back(0.3f * static_cast<float>(static_cast<int>(i) - 3) + 0.1f * t);
            v[i] += std::pow(t, -0.8) * (double{g[i]} * g[i] - v[i]);
            update.push_back(g[i] / std::sqrt(v[i]));
          }
          const double clip = std::max(1.0, rms(update));
          for (size_t i = 0; i < 7; ++i) w[i] -= rate * update[i] / clip;
          Tensor(p[0]).set_grad(tensor(g, {7}));
          adafactor.step();
        }
        CAPTURE(relative);
        CAPTURE(scaled);
        CHECK(largest_difference(p[0].to_vector(), w) < 2e-5);
      }
  });
}

TEST_CASE("muon: others go to AdamW, with their own rate and decay") {
  on_each_device([] {
    const MuonOptions options{.lr = 0.02f};
    const AdamWOptions adamw{.lr = 0.003f, .weight_decay = 0.2f};
    const Parameters hidden = parameters_of_shapes({{3, 5}}),
                     rest = {shaped({7}, 1), shaped({4, 6}, 2)};
    const Parameters alone = parameters_of_shapes({{3, 5}}),
                     beside = {shaped({7}, 1), shaped({4, 6}, 2)};
    Muon both(hidden, options, rest, adamw), muon(alone, options);
    AdamW adam(beside, adamw);
    for (int t = 0; t < 5; ++t) {
      both.zero_grad();
      both.backward(golden_loss(hidden, t) + golden_loss(rest, t));
      both.step();
      golden_step(muon, alone, t);
      golden_step(adam, beside, t);
    }
    CHECK(all_values(hidden) == all_values(alone));
    const Values expected = all_values(beside);
    CHECK(largest_difference(all_values(rest), {expected.begin(), expected.end()}) < 1e-6);
    CHECK(both.state().size() == 1 + 1 + 4);
  });
}

TEST_CASE("muon: a wide and a tall matrix become orthogonal") {
  on_each_device([] {
    for (const Shape& shape : {Shape{6, 40}, Shape{40, 6}, Shape{5, 2, 3, 4}}) {
      const Parameters p = {shaped(shape, 3)};
      const Tensor before = p[0].detach() * 1.0f;
      Muon muon(p, {.lr = 1, .weight_decay = 0, .ns_steps = 12});
      golden_step(muon, p, 0);
      const int64_t rows = shape[0], cols = shape.numel() / rows;
      const Tensor u = reshape(before - p[0].detach(), {rows, cols});
      const float ratio = std::sqrt(std::max(1.0f, float(rows) / float(cols)));
      const Tensor turned = transpose(u, 0, 1);
      const Tensor gram = rows <= cols ? matmul(u, turned) : matmul(turned, u);
      const int64_t side = std::min(rows, cols);
      const Values g = gram.to_vector();
      // The singular values are between 0.6 and 1.3, since the coefficients do not converge to 1.
      for (int64_t i = 0; i < side; ++i)
        CHECK(std::abs(g[i * side + i] / ratio / ratio - 1) < 0.75);
    }
  });
}

TEST_CASE("more optimizers: mistakes are typed errors" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const Parameters p = parameters_of_shapes({{3, 5}}), vector = {shaped({7}, 1)};
  CHECK_THROWS_AS(RMSprop(p, {.alpha = 1}), ValueError);
  CHECK_THROWS_AS(RMSprop(p, {.momentum = -1}), ValueError);
  CHECK_THROWS_AS(Adagrad(p, {.eps = 0}), ValueError);
  CHECK_THROWS_AS(Lion(p, {.beta2 = 1}), ValueError);
  CHECK_THROWS_AS(Adafactor(p, {.eps1 = 1e-30f}), ValueError);
  CHECK_THROWS_AS(Adafactor(p, {.beta2_decay = 0.8f}), ValueError);
  CHECK_THROWS_AS(Muon(p, {.lr = 0}), ValueError);
  CHECK_THROWS_AS(Muon(p, {.ns_steps = 0}), ValueError);
  CHECK_THROWS_AS(Muon(vector, MuonOptions{}), ShapeError);
  SGD sgd(p);  // none of these changed the parameters
  CHECK_THROWS_AS(Lookahead(sgd, 0), ValueError);
  CHECK_THROWS_AS(Lookahead(sgd, 5, 0), ValueError);
  CHECK_THROWS_AS(Swa(sgd, 0), ValueError);
}
