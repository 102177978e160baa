// Learning rates that scale with the batch of an update.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "optim/accumulation/accumulate.h"
#include "optim/schedules/learning_rate.h"
#include "optim/sgd.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using namespace rw::test;

TEST_CASE("learning rate: linear and square root" * doctest::test_suite("host")) {
  using enum LearningRateRule;
  CHECK(scale_lr(0.1f, 256, 128, linear) == doctest::Approx(0.2));
  CHECK(scale_lr(0.1f, 8192, 256, linear) == doctest::Approx(3.2));  // Goyal et al., figure 1
  CHECK(scale_lr(0.1f, 32, 128, linear) == doctest::Approx(0.025));  // down, too
  CHECK(scale_lr(1e-3f, 512, 128, square_root) == doctest::Approx(2e-3));
  CHECK(scale_lr(1e-3f, 64, 128, square_root) == doctest::Approx(1e-3 / std::sqrt(2)));
  CHECK(scale_lr(0.3f, 7, 5, none) == 0.3f);
  for (const LearningRateRule rule : {none, linear, square_root}) {
    CHECK(scale_lr(0.3f, 96, 96, rule) == 0.3f);  // the reference itself to the bit
    CHECK(scale_lr(0, 5, 7, rule) == 0);
  }
  // The largest possible batches do not overflow on the way.
  CHECK(scale_lr(1, int64_t{1} << 62, int64_t{1} << 61, linear) == 2);
}

TEST_CASE("learning rate: mistakes are typed errors" * doctest::test_suite("host")) {
  using enum LearningRateRule;
  for (const LearningRateRule rule : {none, linear, square_root}) {
    CHECK_THROWS_AS(scale_lr(-0.1f, 1, 1, rule), ValueError);
    CHECK_THROWS_AS(scale_lr(std::numeric_limits<float>::infinity(), 1, 1, rule), ValueError);
    CHECK_THROWS_AS(scale_lr(std::nanf(""), 1, 1, rule), ValueError);
    CHECK_THROWS_AS(scale_lr(0.1f, 0, 1, rule), ValueError);
    CHECK_THROWS_AS(scale_lr(0.1f, 1, 0, rule), ValueError);
    CHECK_THROWS_AS(scale_lr(0.1f, 1, -4, rule), ValueError);
  }
  CHECK(parse_learning_rate_rule("none") == none);
  CHECK(parse_learning_rate_rule("linear") == linear);
  CHECK(parse_learning_rate_rule("sqrt") == square_root);
  CHECK_THROWS_WITH_AS(parse_learning_rate_rule("Linear"),
                       doctest::Contains("none, linear or sqrt, got 'Linear'"), ValueError);
}

// If gradients are alike, one update of k batches at k times the rate goes as far as k updates.
TEST_CASE("learning rate: the linear rule is what SGD does where the loss does not bend") {
  on_each_device([] {
    const Values slope = {0.5f, -2, 3};
    constexpr uint32_t n = 4;
    Tensor w = parameter({1, 2, 3}), v = parameter({1, 2, 3});
    SGD single({w}, {.lr = 0.125f});
    Accumulate window(SGD({v}, {.lr = scale_lr(0.125f, 32 * n, 32, LearningRateRule::linear)}), n);
    for (uint32_t i = 0; i < n; ++i) {
      single.zero_grad();
      single.backward(loss_with(w, slope));
      single.step();
      window.backward(loss_with(v, slope));
      window.step();
    }
    CHECK(w.to_vector() == v.to_vector());
  });
}
