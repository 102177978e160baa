// LAMB, compared with the paper's algorithm in double.
#include <cmath>
#include <limits>

#include "optim/accumulation/accumulate.h"
#include "optim/lamb.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// The rule for one parameter.
struct LambReference {
  LambOptions o;
  std::vector<double> x, m = {}, v = {};
  int t = 0;

  void step(const Values& gradient) {
    m.resize(x.size());
    v.resize(x.size());
    ++t;
    std::vector<double> u(x.size());
    double squares_x = 0, squares_u = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double g = gradient[i];
      m[i] = o.beta1 * m[i] + (1.0 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1.0 - o.beta2) * g * g;
      const double root = std::sqrt(v[i] / (1 - std::pow(double{o.beta2}, t)));
      u[i] = m[i] / (1 - std::pow(double{o.beta1}, t)) / (root + o.eps) + o.weight_decay * x[i];
      squares_x += x[i] * x[i];
      squares_u += u[i] * u[i];
    }
    const bool adapts = o.weight_decay != 0 && squares_x > 0 && squares_u > 0;
    const double ratio = adapts ? std::sqrt(squares_x / squares_u) : 1;
    for (size_t i = 0; i < x.size(); ++i) x[i] -= o.lr * ratio * u[i];
  }
};

LambReference lamb_reference(const LambOptions& options, const Values& start) {
  return {options, {start.begin(), start.end()}};
}

// Parameters of several chunks, of one word, and of odd size; one that starts at zero and one that
// does not decay.
struct Setup {
  static constexpr int count = 5;
  std::vector<Values> starts = {some_values(70001, 1), some_values(8, 2), some_values(13, 3),
                                Values(9, 0.0f), some_values(21, 5)};
  std::vector<Tensor> parameters;
  std::vector<LambReference> references;
  LambOptions options{.lr = 0.05f, .weight_decay = 0.1f};

  Setup() {
    for (int i = 0; i < count; ++i) {
      parameters.push_back(parameter(starts[i], fmt::format("p{}", i)));
      LambOptions own = options;
      if (i == count - 1) own.weight_decay = 0;
      references.push_back(lamb_reference(own, starts[i]));
    }
  }
  std::vector<ParameterGroup> groups() const {
    return {{.parameters = {parameters.begin(), parameters.end() - 1}},
            {.parameters = {parameters.back()}, .weight_decay = 0.0f}};
  }
  static Values gradient(int i, int t, size_t n) {
    return some_values(static_cast<int>(n), 7 * i + t);
  }
  Tensor loss(int t) const {
    Tensor total;
    for (int i = 0; i < count; ++i) {
      const Tensor part = loss_with(parameters[i], gradient(i, t, starts[i].size()));
      total = total.defined() ? total + part : part;
    }
    return total;
  }
};

}  // namespace

TEST_CASE("lamb: the paper's rule, with one trust ratio per parameter") {
  on_each_device([] {
    Setup s;
    Lamb lamb(s.groups(), s.options);
    for (int t = 0; t < 6; ++t) {
      lamb.zero_grad();
      lamb.backward(s.loss(t));
      lamb.step();
      for (int i = 0; i < Setup::count; ++i)
        s.references[i].step(Setup::gradient(i, t, s.starts[i].size()));
    }
    for (int i = 0; i < Setup::count; ++i) {
      CAPTURE(i);
      CHECK(largest_difference(s.parameters[i].to_vector(), s.references[i].x) < 1e-5);
    }
  });
}

TEST_CASE("lamb: an overflow leaves parameters and state alone") {
  on_each_device([] {
    Tensor w = parameter(some_values(21));
    Lamb lamb({w});
    const auto step = [&](float first) {
      Values gradient = some_values(21, 4);
      gradient[0] = first;
      lamb.zero_grad();
      lamb.backward(loss_with(w, gradient));
      lamb.step();
      std::vector<Values> all = {w.to_vector()};
      for (const auto& [name, tensor] : lamb.state())
        if (name != "control") all.push_back(tensor.to_vector());
      return all;
    };
    const auto before = step(1);
    CHECK(step(std::numeric_limits<float>::infinity()) == before);
    CHECK(step(1) != before);
    CHECK(lamb.skipped() == 1);
  });
}

TEST_CASE("lamb: accumulation of one micro-batch and saved state give the same bits") {
  on_each_device([] {
    const auto run = [](int steps, Optimizer& optimizer, const Tensor& w, int begin) {
      for (int t = begin; t < begin + steps; ++t) {
        optimizer.zero_grad();
        optimizer.backward(loss_with(w, some_values(21, t)));
        optimizer.step();
      }
      return w.to_vector();
    };
    Tensor a = parameter(some_values(21), "w"), b = parameter(some_values(21), "w");
    Lamb lamb({a});
    Accumulate accumulated(Lamb({b}), 1);
    CHECK(run(3, lamb, a, 0) == run(3, accumulated, b, 0));

    Tensor c = parameter(a.to_vector(), "w");
    Lamb resumed({c});
    resumed.load_state(lamb.state());
    CHECK(run(2, resumed, c, 3) == run(2, lamb, a, 3));
  });
}
