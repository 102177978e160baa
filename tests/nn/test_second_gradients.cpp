// grad() with create_graph: gradients of any order, at points where formulas are special, what is
// refused, and what stays on the tape.
#include <optional>

#include "core/autograd/gradients.h"
#include "ops/numeric.h"
#include "planner/auto_recompute.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

using Values = std::vector<float>;

double largest_difference(const Tensor& a, const Tensor& b) {
  return max(abs(a.detach() - b.detach())).item();
}

TEST_SUITE_BEGIN("host");

TEST_CASE("gradients of gradients: of any order, through seeds and hooks, and under NoGrad") {
  const CpuDevice device;
  const Tensor x = leaf(4), seed = leaf(4);
  const auto slope = [&](const Tensor& y) {
    return grad({sum(y)}, {x}, {.create_graph = true})[0];
  };
  const Tensor third = slope(slope(slope(sin(x))));
  CHECK(third.requires_grad());
  CHECK(largest_difference(third, neg(cos(x))) < 1e-6);
  const Tensor powers = slope(slope(slope(square(square(x)) * x)));
  CHECK(largest_difference(powers, 60.0f * square(x)) < 2e-5);
  // The slope of y along a seed is one of the seed, too.
  const Tensor y = square(x);
  const Tensor along = grad({y}, {x}, {.seeds = {seed}, .create_graph = true})[0];
  CHECK(grad({sum(along)}, {seed})[0].to_vector() == (x.detach() * 2.0f).to_vector());
  {  // hooks: their results are differentiated, and so is what they see
    const Tensor h = x * 3.0f;
    Tensor seen;
    HookHandle hook = h.register_hook([&](const Tensor& g) {
      seen = g * g;
      return seen;
    });
    const Tensor of_x = slope(square(h));  // (2 h)^2 * 3 = 108 x^2
    hook.remove();
    CHECK(largest_difference(grad({sum(of_x)}, {x}, {.retain = true})[0], 216.0f * x.detach()) <
          1e-4);
    CHECK(largest_difference(grad({sum(seen)}, {x})[0], 72.0f * x.detach()) < 1e-4);
  }
  const Tensor total = sum(x * x);
  Tensor g;
  {
    const NoGrad guard;
    g = grad({total}, {x}, {.create_graph = true})[0];
  }
  CHECK(grad({sum(g)}, {x})[0].to_vector() == Values(4, 2));
  // A gradient of a result, and one that is 0 since nothing depends on x.
  const Tensor k = exp(x), of_k = grad({sum(square(k))}, {k}, {.create_graph = true})[0];
  CHECK(largest_difference(grad({sum(of_k)}, {x})[0], 2.0f * exp(x.detach())) < 1e-5);
  CHECK(!slope(x * 2.0f).requires_grad());
}

TEST_CASE("gradients of gradients: of products with zeros, and where two numbers are equal") {
  const CpuDevice device;
  const auto hessian_row = [](Values at, int64_t row, auto run) {
    const Tensor x = tensor(at, {static_cast<int64_t>(at.size())}).set_requires_grad();
    const Tensor g = grad({sum(run(x))}, {x}, {.create_graph = true})[0];
    return grad({g[row]}, {x})[0].to_vector();
  };
  const auto product = [](const Tensor& x) { return prod(x); };
  CHECK(hessian_row({0, 2, 0, 5, 1}, 0, product) == Values{0, 0, 10, 0, 0});
  CHECK(hessian_row({0, 2, 3}, 1, product) == Values{3, 0, 0});
  CHECK(hessian_row({4, 2, 3}, 1, product) == Values{3, 0, 4});
  CHECK(hessian_row({1, 1}, 0, [](const Tensor& x) { return logaddexp(x[0], x[1]); }) ==
        Values{0.25f, -0.25f});
  CHECK(hessian_row({0, 0}, 0, [](const Tensor& x) { return norm(x); }) == Values{0, 0});
  CHECK(hessian_row({2, 0}, 0, [](const Tensor& x) { return pow(x[0], x[1]); }) == Values{0, 0.5f});
  CHECK(hessian_row({0, 2}, 0, [](const Tensor& x) { return pow(x[0], 2) * x[1]; }) ==
        Values{4, 0});
  const auto products = [](const Tensor& x) { return sum(cumprod(x, 0)); };
  CHECK(hessian_row({0, 2, 0, 5}, 0, products) == Values{0, 1, 12, 0});
}

std::vector<Tensor> square_forward(const std::any&, std::span<Tensor> inputs) {
  const NoGrad guard;
  return {inputs[0] * inputs[0]};
}

TEST_CASE("gradients of gradients: what cannot be differentiated is refused by its name") {
  const CpuDevice device;
  const Tensor x = leaf(4);
  const auto saves = [](const std::any&, uint32_t) { return Saves{1, 0}; };
  const auto vjp = [](Record& r, std::span<Tensor> dy) -> std::vector<Tensor> {
    return {dy[0] * r.input(0) * 2.0f};
  };
  const auto detached = [](Record& r, std::span<Tensor> dy) -> std::vector<Tensor> {
    return {(dy[0] * r.input(0) * 2.0f).detach()};
  };
  const Op plain = {.name = "my_square", .forward = square_forward, .vjp = vjp, .saves = saves};
  Op recorded = plain, wrong = plain;
  recorded.records_vjp = wrong.records_vjp = true;
  wrong.vjp = detached;
  const auto slope = [&](const Op& op) {
    return grad({sum(square(apply1(op, {}, x)))}, {x}, {.create_graph = true})[0];
  };
  CHECK(contains(message_of<AutogradError>([&] { slope(plain); }),
                 "create_graph: the gradient of 'my_square' cannot be differentiated"));
  CHECK(contains(message_of<AutogradError>([&] { slope(wrong); }),
                 "must make its gradients of dy by public ops"));
  CHECK(largest_difference(grad({sum(slope(recorded))}, {x})[0], 12.0f * square(x.detach())) <
        1e-5);
  {  // without its graph, the gradient says what to do
    const Tensor g = grad({sum(square(x))}, {x})[0];
    CHECK(
        contains(message_of<AutogradError>([&] { sum(g * x).backward(); }), "create_graph = true"));
  }
}

// Parts that are alone.
struct Alone : StatisticsExchange {
  int64_t rows(int64_t own) override { return own; }
  BatchStatistics combine(BatchStatistics own) override { return own; }
  Tensor sum(Tensor own) override { return own; }
};

TEST_CASE("gradients of gradients: a batch norm is differentiated unless parts exchange sums") {
  const CpuDevice device;
  const Tensor x = leaf(8), weight = leaf(2), bias = leaf(2);
  const auto of = [&](std::shared_ptr<StatisticsExchange> exchange) {
    const auto result = batch_norm(reshape(x, {4, 2}), weight, bias, 1e-5f, std::move(exchange));
    return grad({sum(square(result.y))}, {x}, {.create_graph = true})[0];
  };
  sum(square(of({}))).backward();
  CHECK(weight.grad().defined());
  CHECK(contains(message_of<AutogradError>([&] { of(std::make_shared<Alone>()); }),
                 "the gradient of 'batch_norm' cannot"));
}

TEST_CASE("gradients of gradients: through values that were evicted") {
  const CpuDevice device;
  Tensor x = leaf(64), w = leaf(64);
  const auto run = [&](bool evicts) {
    Tensor y;
    {
      std::optional<PlanFollower> follower;
      if (evicts) follower.emplace(Plan{.evicts = true});
      y = sum(tanh(x * w) * exp(x));
    }
    if (evicts) CHECK(CpuDevice::tape().evict(UINT64_MAX));
    const Tensor g = grad({y}, {x}, {.create_graph = true})[0];
    if (evicts) CpuDevice::tape().evict(UINT64_MAX);
    const Tensor loss = sum(square(g)) + y;
    loss.backward();
    const Values both = w.grad().to_vector();
    w.set_grad({});
    x.set_grad({});
    return both;
  };
  CHECK(run(true) == run(false));
  CHECK(CpuDevice::tape().evictions() > 0);
}

// Returns the gradients of a penalty on gradients, in `steps` steps, and the peak.
std::pair<Values, uint64_t> penalised_steps(const std::optional<AutoRecomputeOptions>& options,
                                            int steps) {
  const CpuDevice device;
  std::optional<AutoRecompute> recompute;
  if (options) recompute.emplace(*options);
  std::vector<Tensor> weights;
  for (int i = 0; i < 6; ++i)
    weights.push_back((reshape(leaf(32 * 32 + i).detach()[{Slice{0, 32 * 32}}], {32, 32}) * 0.3f)
                          .set_requires_grad());
  Values all;
  for (int step = 0; step < steps; ++step) {
    Tensor loss;
    {
      const Tensor x = leaf(512 * 32 + step).detach();
      const Tensor start = reshape(x[{Slice{0, 512 * 32}}], {512, 32}).set_requires_grad();
      Tensor y = start;
      for (const Tensor& w : weights) y = gelu(tanh(linear(y, w)));
      const Tensor g = grad({sum(y)}, {start}, {.create_graph = true})[0];
      loss = mean(square(norm(g, 2, {1}) - 1.0f)) + mean(square(y));
    }
    loss.backward();
    for (Tensor& w : weights) {
      const Values of_w = w.grad().to_vector();
      all.insert(all.end(), of_w.begin(), of_w.end());
      w.set_grad({});
    }
    loss = {};
    device.device->end_step();
  }
  return {all, device.device->memory_report().peak};
}

TEST_CASE("gradients of gradients: under plans of recomputation, and within budgets") {
  using Mode = AutoRecomputeOptions::Mode;
  const auto [plain, peak] = penalised_steps({}, 4);
  for (const Mode mode : {Mode::memory, Mode::speed})
    CHECK(penalised_steps(AutoRecomputeOptions{.mode = mode}, 4).first == plain);
  // Records of a backward stay, so a budget either holds, or is too small.
  for (const Mode mode : {Mode::budget, Mode::evict}) {
    const auto within = [mode](uint64_t budget) {
      return penalised_steps(AutoRecomputeOptions{.mode = mode, .budget = budget}, 4);
    };
    const auto [values, highest] = within(peak);
    CHECK(values == plain);
    CHECK(highest <= peak);
    CHECK_THROWS_AS(within(peak / 2), OutOfMemory);
  }
}

TEST_CASE("gradients of gradients: records go when nobody needs them") {
  const CpuDevice device;
  const Tensor x = leaf(4);
  const uint64_t live = device.live();
  for (int i = 0; i < 2; ++i) {
    const Tensor g = grad({sum(tanh(x) * x)}, {x}, {.create_graph = true})[0];
    CHECK(CpuDevice::tape().stats().records > 0);
    if (i == 0) sum(square(g)).backward();  // frees them as it passes
  }
  CHECK(CpuDevice::tape().stats().records == 0);  // the handle is gone
  x.impl().grad = {};
  CHECK(device.live() == live);
}

TEST_SUITE_END();

}  // namespace

}  // namespace rw::test
