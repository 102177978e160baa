// update_prepare, sgd and adam: schedules, loss-scale rules and update formulas, with results
// computed by hand.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <string_view>

#include "backends/reference/reference_backend.h"
#include "shaders/params.h"
#include "tests/fixtures/kernel_runner.h"

using namespace rw;
using namespace rw::kernels;
using rw::test::KernelRunner;
using rw::test::max_difference;
using Values = std::vector<float>;

namespace {

UpdatePrepareParams plain_params() {
  UpdatePrepareParams p{};
  p.chunks = 1;
  p.weight = 1;
  return p;
}

// One optimizer's state on the reference backend.
class Updates {
 public:
  explicit Updates(float scale = 1) {
    Values state(STATE_MISSED(1), 0);
    state[STATE_SCALE] = scale;
    state_ = cpu.upload(state);
  }

  // Runs update_prepare once with a finite or an overflowed gradient, and returns the state after
  // it.
  Values prepare(const UpdatePrepareParams& p, bool finite = true, float squares = 1) {
    const Binding partial = cpu.upload({finite ? squares : INFINITY, finite ? 0.0f : 1.0f, 1});
    cpu.run("update_prepare", {partial, state_}, p);
    cpu.backend().free_block(partial.range.block);
    return cpu.download(state_);
  }

  const Binding& state() const { return state_; }

  KernelRunner cpu{make_reference_backend()};

 private:
  Binding state_;
};

// Returns the learning-rate factors of the first n updates.
Values factors(const UpdatePrepareParams& p, int n) {
  Updates updates;
  Values values;
  for (int t = 0; t < n; ++t) values.push_back(updates.prepare(p)[STATE_LR_FACTOR]);
  return values;
}

// Returns the scales after each gradient of `history` ('.' finite, 'x' overflow).
Values kernel_scales(const UpdatePrepareParams& p, float initial, std::string_view history) {
  Updates updates(initial);
  Values values;
  for (char c : history) values.push_back(updates.prepare(p, c == '.')[STATE_SCALE]);
  return values;
}

}  // namespace

TEST_CASE("update_prepare: schedules" * doctest::test_suite("host")) {
  UpdatePrepareParams p = plain_params();
  CHECK(factors(p, 3) == Values{1, 1, 1});
  p.warmup = 4;
  CHECK(factors(p, 6) == Values{0.25f, 0.5f, 0.75f, 1, 1, 1});

  p.warmup = 2, p.total = 6, p.floor_factor = 0.2f;
  p.schedule = SCHEDULE_LINEAR;
  CHECK(max_difference(factors(p, 8), {0.5f, 1, 1, 0.8f, 0.6f, 0.4f, 0.2f, 0.2f}) < 1e-6);
  p.schedule = SCHEDULE_COSINE;
  const float quarter = 0.2f + 0.4f * (1 + std::sqrt(0.5f));
  CHECK(max_difference(factors(p, 8), {0.5f, 1, 1, quarter, 0.6f, 1.2f - quarter, 0.2f, 0.2f}) <
        1e-6);
  p.schedule = SCHEDULE_POLYNOMIAL, p.gamma = 2;
  CHECK(max_difference(factors(p, 7), {0.5f, 1, 1, 0.65f, 0.4f, 0.25f, 0.2f}) < 1e-6);
  p.schedule = SCHEDULE_STEP, p.gamma = 0.1f, p.period = 2;
  CHECK(max_difference(factors(p, 7), {0.5f, 1, 1, 1, 0.1f, 0.1f, 0.01f}) < 1e-6);
}

TEST_CASE("update_prepare: loss scale by PyTorch's GradScaler rules" *
          doctest::test_suite("host")) {
  UpdatePrepareParams p = plain_params();
  p.dynamic = 1, p.hysteresis = 1, p.interval = 3;
  p.growth = 2, p.backoff = 0.5f, p.min_scale = 0, p.max_scale = 64;
  CHECK(kernel_scales(p, 16, "...") == Values{16, 16, 32});
  CHECK(kernel_scales(p, 16, "..x...") ==
        Values{16, 16, 8, 8, 8, 16});  // an overflow restarts the count
  CHECK(kernel_scales(p, 16, "xx") == Values{8, 4});
  CHECK(kernel_scales(p, 64, "...") == Values{64, 64, 64});  // the ceiling
  p.hysteresis = 2;  // overflows in a row, unless they add up
  CHECK(kernel_scales(p, 16, "xx") == Values{16, 8});
  CHECK(kernel_scales(p, 16, "x.x.xx") == Values{16, 16, 16, 16, 16, 8});
  CHECK(kernel_scales(p, 16, "xxx.xx") == Values{16, 8, 8, 8, 8, 4});
}

TEST_CASE("update_prepare: loss scale by TensorFlow's ExponentialUpdateLossScaleManager rules" *
          doctest::test_suite("host")) {
  UpdatePrepareParams p = plain_params();
  p.dynamic = 1, p.keep_bad = 1, p.hysteresis = 2, p.interval = 3;
  p.growth = 2, p.backoff = 0.8f, p.min_scale = 1, p.max_scale = 0x1p126f;
  CHECK(kernel_scales(p, 10, "xx") == Values{10, 8});
  CHECK(kernel_scales(p, 10, "x.x") ==
        Values{10, 10, 8});  // overflows add up across finite updates
  CHECK(kernel_scales(p, 10, "x...x") == Values{10, 10, 10, 20, 20});  // until the scale changes
  CHECK(kernel_scales(p, 1, "xx") == Values{1, 1});                    // the floor
  // The original example: from 2^32 with two overflows per halving, 32 updates are skipped down to
  // 2^16.
  p.backoff = 0.5f, p.interval = 1000;
  CHECK(kernel_scales(p, 0x1p32f, std::string(32, 'x')).back() == 0x1p16f);
}

TEST_CASE("update_prepare: unscale, clip, skip" * doctest::test_suite("host")) {
  UpdatePrepareParams p = plain_params();
  p.dynamic = 1, p.hysteresis = 1, p.interval = 1;
  p.growth = 2, p.backoff = 0.5f, p.max_scale = 1e9f;
  p.weight = 4, p.max_norm = 0.5f;
  Updates updates(8);
  Values state = updates.prepare(p, true, 1024);  // |g| = 32 / 8 / 4 = 1
  CHECK(state[STATE_GRAD_NORM] == 1);
  CHECK(state[STATE_GRAD_FACTOR] == doctest::Approx(0.5 / 32));  // by the scale of this gradient
  CHECK(state[STATE_SCALE] == 16);                               // the scale then grows
  CHECK(state[STATE_UPDATES] == 1);
  CHECK(state[STATE_FOUND_INF] == 0);

  state = updates.prepare(p, false);
  CHECK(state[STATE_FOUND_INF] == 1);
  CHECK(state[STATE_SKIPPED] == 1);
  CHECK(state[STATE_UPDATES] == 1);
  CHECK(state[STATE_SCALE] == 8);

  p.dynamic = 0;  // a fixed scale skips too, and stays
  state = updates.prepare(p, false);
  CHECK(state[STATE_SKIPPED] == 2);
  CHECK(state[STATE_SCALE] == 8);
  p.max_norm = 0;
  CHECK(updates.prepare(p)[STATE_GRAD_FACTOR] == 1 / 32.0f);
}

TEST_CASE("grad_stats: sums and overflow flags per chunk" * doctest::test_suite("host")) {
  KernelRunner cpu(make_reference_backend());
  Values g(20, 2);
  g[9] = INFINITY;
  g[19] = 3;
  // Three chunks of gradients that are not contiguous, and a parameter without one; the rows come
  // in another order than the numbers of their chunks.
  const Binding table = cpu.upload({16, 16, 4, 2, 0, 0, 8, 0, 24, 0, 0, 3, 8, 8, 8, 1}, DType::i32);
  const Binding partial = cpu.allocate(12);
  cpu.run("grad_stats", {cpu.upload(g), table, partial}, GradStatsParams{{}, 0, 4, 4});
  CHECK(cpu.download(partial) ==
        Values{32, cpu.download(partial)[1], 3 * 4 + 9, 0, 0, 1, 0, 0, 1, 1, 1, 0});
}

TEST_CASE("sgd: momentum, nesterov, weight decay, maximize" * doctest::test_suite("host")) {
  // Makes two updates with gradients 1 and -2 from parameter 1, lr 0.1.
  const auto train = [](SgdParams p) {
    Updates updates;
    const Binding param = updates.cpu.upload({1}), momentum = updates.cpu.allocate(1);
    p.rows = 1;
    p.lr = 0.1f;
    const Binding table = updates.cpu.upload({0, 0, 1, 0}, DType::i32);
    Values values;
    for (float g : {1.0f, -2.0f}) {
      updates.prepare(plain_params());
      const Binding& buffer = p.momentum == 0 ? param : momentum;
      updates.cpu.run("sgd", {param, updates.cpu.upload({g}), buffer, table, updates.state()}, p);
      values.push_back(updates.cpu.download(param)[0]);
    }
    return values;
  };
  const auto near = [](const Values& a, const Values& b) { return max_difference(a, b) < 1e-6; };
  CHECK(near(train({}), {0.9f, 1.1f}));
  CHECK(near(train({.maximize = 1}), {1.1f, 0.9f}));
  CHECK(near(train({.weight_decay = 0.5f}), {0.85f, 1.0075f}));
  // The buffers are 1, then 0.5 - 2 = -1.5. The first comes from the gradient, not from
  // uninitialized memory with NaN.
  CHECK(near(train({.momentum = 0.5f}), {0.9f, 1.05f}));
  CHECK(near(train({.momentum = 0.5f, .nesterov = 1}), {1 - 0.15f, 0.85f + 0.275f}));
  // Dampening does not apply to the first update: 1, then 0.5 - 0.75 * 2 = -1.
  CHECK(near(train({.momentum = 0.5f, .dampening = 0.25f}), {0.9f, 1.0f}));
}

TEST_CASE("adam: two updates by hand, weight decay, skipped update" * doctest::test_suite("host")) {
  Updates updates;
  KernelRunner& cpu = updates.cpu;
  const Binding param = cpu.upload({1}), m = cpu.upload({0}), v = cpu.upload({0});
  AdamParams p{.offset = {}, .rows = 1, .lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
  const Binding table = cpu.upload({0, 0, 1, 0}, DType::i32);
  const auto step = [&](float g) {
    cpu.run("adam", {param, cpu.upload({g}), m, v, table, updates.state()}, p);
    return cpu.download(param)[0];
  };

  SUBCASE("moments and bias correction") {
    updates.prepare(plain_params());
    CHECK(step(1) == doctest::Approx(0.9));  // the first step is lr * sign(g)
    updates.prepare(plain_params());
    // m = 0.04, v = 0.001249: (0.04 / 0.19) / sqrt(0.001249 / 0.001999)
    CHECK(step(-0.5f) == doctest::Approx(0.9 - 0.1 * 0.21052632 / 0.79045006).epsilon(1e-6));
    CHECK(cpu.download(m)[0] == doctest::Approx(0.04).epsilon(1e-5));
    CHECK(cpu.download(v)[0] == doctest::Approx(0.001249).epsilon(1e-5));
  }
  SUBCASE("decoupled decay shrinks the parameter, not the moments") {
    p.weight_decay = 0.5f, p.decoupled = 1;
    updates.prepare(plain_params());
    CHECK(step(1) == doctest::Approx(0.95 - 0.1));
    CHECK(cpu.download(m)[0] == doctest::Approx(0.1));
  }
  SUBCASE("L2 decay enters the moments") {
    p.weight_decay = 0.5f;
    updates.prepare(plain_params());
    step(1);
    CHECK(cpu.download(m)[0] == doctest::Approx(0.15));
  }
  SUBCASE("an overflow leaves everything as it was") {
    updates.prepare(plain_params(), false);
    CHECK(step(INFINITY) == 1);
    CHECK(cpu.download(m)[0] == 0);
    CHECK(cpu.download(v)[0] == 0);
  }
}
