// Optimizers: update formulas, compared with PyTorch's rules in double; groups, clipping, state.
#include <cmath>
#include <limits>

#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"
#include "optim/base/gradient_table.h"
#include "optim/lamb.h"
#include "optim/sgd.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// The rule of torch.optim.SGD, for one parameter.
struct SgdReference {
  SGDOptions o;
  std::vector<double> x, buffer = {};

  void step(const Values& gradient) {
    const bool is_first = buffer.empty();
    if (is_first) buffer.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      double g = (o.maximize ? -1.0 : 1.0) * gradient[i] + double{o.weight_decay} * x[i];
      if (o.momentum != 0) {
        buffer[i] = is_first ? g : o.momentum * buffer[i] + (1.0 - o.dampening) * g;
        g = o.nesterov ? g + o.momentum * buffer[i] : buffer[i];
      }
      x[i] -= o.lr * g;
    }
  }
};

// The rules of torch.optim.Adam and AdamW, for one parameter.
struct AdamReference {
  AdamOptions o;
  bool decoupled;
  std::vector<double> x, m = {}, v = {};
  int t = 0;

  void step(const Values& gradient) {
    m.resize(x.size());
    v.resize(x.size());
    ++t;
    for (size_t i = 0; i < x.size(); ++i) {
      double g = gradient[i];
      if (decoupled)
        x[i] -= double{o.lr} * o.weight_decay * x[i];
      else
        g += double{o.weight_decay} * x[i];
      m[i] = o.beta1 * m[i] + (1.0 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1.0 - o.beta2) * g * g;
      const double root = std::sqrt(v[i] / (1 - std::pow(double{o.beta2}, t)));
      x[i] -= o.lr * (m[i] / (1 - std::pow(double{o.beta1}, t))) / (root + o.eps);
    }
  }
};

// Takes ten steps of both and returns the largest difference.
template <class O, class R>
double difference_after_steps(const Tensor& w, O& optimizer, R& reference) {
  for (int t = 0; t < 10; ++t) {
    const Values gradient = some_values(static_cast<int>(w.numel()), t + 1);
    optimizer.zero_grad();
    optimizer.backward(loss_with(w, gradient));
    optimizer.step();
    reference.step(gradient);
  }
  return largest_difference(w.to_vector(), reference.x);
}

}  // namespace

TEST_CASE("sgd: PyTorch's rule") {
  const SGDOptions cases[] = {
      {.lr = 0.1f},
      {.lr = 0.1f, .weight_decay = 0.1f},
      {.lr = 0.1f, .momentum = 0.9f},
      {.lr = 0.1f, .momentum = 0.9f, .dampening = 0.5f},
      {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true},
      {.lr = 0.1f, .maximize = true}};
  on_each_device([&] {
    for (const SGDOptions& options : cases) {
      CAPTURE(options.momentum);
      CAPTURE(options.weight_decay);
      const Values start = some_values(21);
      Tensor w = parameter(start);
      SGD optimizer({w}, options);
      SgdReference reference{options, doubles(start)};
      CHECK(difference_after_steps(w, optimizer, reference) < 2e-6);
    }
  });
}

TEST_CASE("adam and adamw: PyTorch's rule") {
  on_each_device([] {
    for (const float decay : {0.0f, 0.1f}) {
      CAPTURE(decay);
      const Values start = some_values(21);
      Tensor a = parameter(start), b = parameter(start);
      Adam adam({a}, {.lr = 0.01f, .weight_decay = decay});
      AdamW adamw({b}, {.lr = 0.01f, .weight_decay = decay});
      const AdamOptions options{.lr = 0.01f, .weight_decay = decay};
      AdamReference coupled{options, false, doubles(start)},
          decoupled{options, true, doubles(start)};
      CHECK(difference_after_steps(a, adam, coupled) < 5e-6);
      CHECK(difference_after_steps(b, adamw, decoupled) < 2e-6);
    }
  });
}

TEST_CASE("optimizer: a known answer of Adam's first step") {
  on_each_device([] {
    Tensor w = parameter({1, 1, 1});
    Adam adam({w});
    one_step(adam, w, {0.5f, -2, 0});
    // The first step is lr * sign(g), except for eps.
    CHECK(largest_difference(w.to_vector(), {0.999, 1.001, 1}) < 1e-6);
    CHECK(adam.updates() == 1);
    CHECK(adam.grad_norm() == doctest::Approx(std::sqrt(4.25)));
  });
}

TEST_CASE("optimizer: parameters move into one storage and handles stay valid") {
  on_each_device([] {
    Tensor a = parameter({1, 2, 3}), b = parameter(some_values(20)), frozen = parameter({7});
    const Tensor same = a;
    frozen.set_requires_grad(false);
    const Tensor before = frozen.detach();
    {
      Adam adam({a, b, frozen});
      CHECK(a.impl().storage == b.impl().storage);
      CHECK(b.impl().offset == 8);
      CHECK(same.to_vector() == Values{1, 2, 3});
      CHECK(b.to_vector() == some_values(20));
      CHECK(frozen.impl().storage == before.impl().storage);
      CHECK(a.impl().storage->purpose() == Purpose::parameter);
      CHECK_THROWS_AS(SGD({a}), AutogradError);  // belongs to adam
    }
    SGD sgd({a, b}, {.lr = 1});  // the next optimizer takes over
    one_step(sgd, a, {1, 0, 0});
    CHECK(a.to_vector() == Values{0, 2, 3});
    CHECK(b.to_vector() == some_values(20));
  });
}

TEST_CASE("optimizer: lists of parameters in braces" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const auto complaint = [](auto make) { return message_of<ValueError>(make); };
  const std::string none =
      "[optimizer] at least one parameter that requires a gradient is needed, got no parameters";
  CHECK(complaint([] { Adam({}); }) == none);
  CHECK(complaint([] { AdamW({}); }) == none);
  CHECK(complaint([] { SGD({}, {.lr = 1}); }) == none);
  CHECK(complaint([] { Lamb({}); }) == none);
  CHECK(contains(complaint([] { Adam({full({2}, 1)}); }), "got only ones that do not"));
  const Tensor w = parameter({1, 2}), b = parameter({3});
  CHECK(Adam({w, b}).parameters().slots().size() == 2);
  CHECK(Adam({{.parameters = {w}}, {.parameters = {b}, .lr_scale = 2}}).groups().size() == 2);
}

TEST_CASE("optimizer: mistakes are typed errors" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  Tensor w = parameter({1, 2}, "layer.weight");
  const auto make = [](std::vector<Tensor> parameters) { SGD sgd(std::move(parameters)); };
  CHECK_THROWS_WITH_AS(make({w, w}), "[optimizer] 'layer.weight' appears twice", AutogradError);
  CHECK_THROWS_AS(make({}), ValueError);
  {
    const Tensor view = w.detach();
    CHECK_THROWS_AS(make({w}), AutogradError);
  }
  CHECK_THROWS_AS(SGD({w}, {.nesterov = true}), ValueError);
  CHECK_THROWS_AS(Adam({w}, {.beta1 = 1}), ValueError);

  SGD sgd({w});  // none of the attempts above changed anything
  CHECK_THROWS_AS(sgd.backward(w * 2), ShapeError);
  CHECK_THROWS_AS(sgd.set_max_norm(-1), ValueError);
  sgd.set_scaler(LossScaler::dynamic());
  sum(w * 2).backward();
  CHECK_THROWS_AS(sgd.step(), AutogradError);  // the gradient lacks the loss scale
}

TEST_CASE("optimizer: a gradient takes memory in backward and gives it back") {
  on_each_device([] {
    const auto gradients = [] {
      return default_device()->memory_report().live_by_purpose[static_cast<int>(Purpose::gradient)];
    };
    Tensor a = parameter(some_values(1000)), b = parameter(some_values(500));
    Adam adam({a, b});
    CHECK(gradients() == 0);
    const Tensor loss = loss_with(a, some_values(1000));
    CHECK(gradients() == 0);
    adam.backward(loss);
    CHECK(gradients() == 4000);  // none for b
    CHECK_FALSE(b.grad().defined());
    CHECK(adam.step());
    CHECK(gradients() == 4000);
    adam.zero_grad();
    CHECK(gradients() == 0);
    CHECK_FALSE(a.grad().defined());
    CHECK_FALSE(adam.step());  // there is nothing to do
    CHECK(adam.updates() == 1);
  });
}

TEST_CASE("optimizer: a parameter without a gradient stays as it is") {
  on_each_device([] {
    const auto check_alone = [](auto&& optimizer, Tensor& a, Tensor& b) {
      const Values before = b.to_vector();
      for (int t = 0; t < 3; ++t) one_step(optimizer, a, some_values(21, t));
      CHECK(a.to_vector() != some_values(21));
      CHECK(b.to_vector() == before);
    };
    const auto make = [] { return parameter(some_values(21)); };
    Tensor a = make(), b = make(), c = make(), d = make(), e = make(), f = make();
    check_alone(SGD({a, b}, {.momentum = 0.9f, .weight_decay = 0.1f}), a, b);
    check_alone(AdamW({c, d}, {.lr = 0.1f, .weight_decay = 0.1f}), c, d);
    check_alone(Lamb({e, f}, {.lr = 0.1f, .weight_decay = 0.1f}), e, f);
    Tensor g = make(), h = make();
    check_alone(Accumulate(AdamW({g, h}, {.lr = 0.1f, .weight_decay = 0.1f}), 2), g, h);
  });
}

TEST_CASE("optimizer: gradients in several blocks of memory, in turns") {
  on_each_device([] {
    const auto train = [](bool apart, auto make) {
      std::vector<Tensor> parameters;
      for (int i = 0; i < 4; ++i) parameters.push_back(parameter(some_values(9000 + i, i)));
      auto optimizer = make(parameters);
      std::vector<Tensor> between;  // fills the rest of a block
      const auto block_of = [](const Tensor& t) { return t.impl().storage->range().block; };
      for (const int i : {0, 2, 1, 3}) {
        const auto make_gradient = [i] { return tensor(some_values(9000 + i, i + 7), {9000 + i}); };
        Tensor gradient = make_gradient();
        while (apart && i % 2 && block_of(gradient) == block_of(parameters[0].grad())) {
          between.push_back(gradient);
          gradient = make_gradient();
        }
        parameters[i].set_grad(gradient);
      }
      const auto block = [&](int i) { return block_of(parameters[i].grad()); };
      CHECK((block(0) != block(1)) == apart);
      CHECK((block(2) != block(3)) == apart);
      GradientTable table({{parameters[0]}, {parameters[1]}, {parameters[2]}, {parameters[3]}});
      table.locate();
      size_t dispatches = 0;
      for ([[maybe_unused]] const GradientTable::Part& part : table.parts(0)) ++dispatches;
      CHECK(dispatches == (apart ? 2 : 1));
      optimizer.set_max_norm(0.5f);
      optimizer.step();
      std::vector<Values> all;
      for (const Tensor& p : parameters) all.push_back(p.to_vector());
      return all;
    };
    const auto sgd = [](auto p) { return SGD({{.parameters = p}}, {.lr = 1}); };
    const auto adam = [](auto p) { return Adam({{.parameters = p}}, {.lr = 0.1f}); };
    const auto lamb = [](auto p) { return Lamb({{.parameters = p}}, {.lr = 0.1f}); };
    CHECK(train(true, sgd) == train(false, sgd));
    CHECK(train(true, adam) == train(false, adam));
    CHECK(train(true, lamb) == train(false, lamb));
  });
}

TEST_CASE("optimizer: a stale saved value is an error, not a wrong gradient") {
  on_each_device([] {
    Tensor w = parameter({1, 2});
    SGD sgd({w});
    const Tensor loss = sum(w * w);
    w.set_grad(ones({2}));
    sgd.step();
    CHECK_THROWS_AS(sgd.backward(loss), AutogradError);
  });
}

TEST_CASE("optimizer: groups have their own decay and learning rate") {
  on_each_device([] {
    Tensor a = parameter({1, 1}), b = parameter({1, 1}), c = parameter({1, 1});
    AdamW adam({{.parameters = {a}},
                {.parameters = {b}, .lr_scale = 0.5f},
                {.parameters = {c}, .weight_decay = 0}},
               {.lr = 0.1f, .weight_decay = 0.5f});
    for (Tensor* p : {&a, &b, &c}) p->set_grad(zeros({2}));
    adam.step();  // decay alone
    CHECK(largest_difference(a.to_vector(), {0.95, 0.95}) < 1e-6);
    CHECK(largest_difference(b.to_vector(), {0.975, 0.975}) < 1e-6);
    CHECK(c.to_vector() == Values{1, 1});
  });
}

TEST_CASE("optimizer: clipping by the norm of all gradients") {
  on_each_device([] {
    Tensor a = parameter({0, 0}), b = parameter({0});
    SGD sgd({{.parameters = {a}}, {.parameters = {b}}}, {.lr = 1});
    sgd.set_max_norm(1);
    const auto step = [&](float scale) {
      sgd.zero_grad();
      sgd.backward(loss_with(a, {2 * scale, 3 * scale}) + loss_with(b, {6 * scale}));
      CHECK(grad_norm({a, b}) == doctest::Approx(7 * scale));
      sgd.step();
      CHECK(sgd.grad_norm() == doctest::Approx(7 * scale));
    };
    step(1);
    CHECK(largest_difference(a.to_vector(), {-2.0 / 7, -3.0 / 7}) < 1e-6);
    CHECK(largest_difference(b.to_vector(), {-6.0 / 7}) < 1e-6);
    step(0.125f);  // shorter than the limit: as it is
    CHECK(largest_difference(b.to_vector(), {-6.0 / 7 - 0.75}) < 1e-6);
  });
}

TEST_CASE("optimizer: several slabs") {
  on_each_device([] {
    const int64_t large = (int64_t{128} << 20) / 4;
    Tensor a = parameter({1, 2}), b = zeros({large}), c = parameter({3});
    b.set_requires_grad();
    SGD sgd({a, b, c}, {.lr = 1});
    CHECK(a.impl().storage != b.impl().storage);
    sgd.set_max_norm(0.5f);
    sgd.backward(loss_with(a, {2, 3}) + loss_with(c, {6}));
    sgd.step();
    CHECK(sgd.grad_norm() == doctest::Approx(7));
    CHECK(largest_difference(c.to_vector(), {3 - 3.0 / 7}) < 1e-6);
    sgd.zero_grad();
    sgd.backward(loss_with(c, {infinity}));
    sgd.step();
    CHECK(sgd.skipped() == 1);
  });
}

TEST_CASE("optimizer: an overflow changes neither parameters nor state") {
  on_each_device([] {
    Tensor w = parameter({1, 2, 3});
    Adam adam({w}, {.lr = 0.1f, .weight_decay = 0.1f});
    one_step(adam, w, {1, 1, 1});
    const Values x = w.to_vector(), m = adam.state()[1].second.to_vector();
    for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      one_step(adam, w, {1, bad, 1});
      CHECK(w.to_vector() == x);
      CHECK(adam.state()[1].second.to_vector() == m);
    }
    CHECK(adam.updates() == 1);
    CHECK(adam.skipped() == 3);
  });
}

TEST_CASE("decay groups: biases and normalisation do not decay") {
  on_each_device([] {
    Tensor matrix = ones({2, 3}).set_requires_grad(), bias = ones({3}).set_requires_grad();
    const auto groups = decay_groups({matrix, bias}, 0.5f);
    SGD sgd(groups, {.lr = 0.5f});
    matrix.set_grad(zeros({2, 3}));
    bias.set_grad(zeros({3}));
    sgd.step();
    CHECK(matrix.to_vector() == Values(6, 0.75f));
    CHECK(bias.to_vector() == Values(3, 1));
  });
}

TEST_CASE("optimizer: saved state continues bit for bit") {
  on_each_device([] {
    const Values start = some_values(9);
    Tensor a = parameter(start, "w"), b = parameter(start, "w");
    Adam first({a}), second({b});
    for (int t = 0; t < 3; ++t) one_step(first, a, some_values(9, t));
    b.copy_(a.detach());
    const Optimizer::NamedState state = first.state();
    CHECK(state[1].first == "exp_avg.w");
    second.load_state(state);
    one_step(first, a, some_values(9, 7));
    one_step(second, b, some_values(9, 7));
    CHECK(a.to_vector() == b.to_vector());
    CHECK(second.updates() == 4);
    CHECK_THROWS_AS(second.load_state({}), FileError);
  });
}
