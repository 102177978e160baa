// Learning rates that scale with the batch of an update.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "optim/accumulation/accumulate.h"
#include "optim/schedules/learning_rate.h"
#include "optim/schedules/recipe.h"
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

TEST_CASE("recipe: rates are those of the field, by kind, size and batch" *
          doctest::test_suite("host")) {
  using enum TrainingWork::Kind;
  const auto rate = [](TrainingWork::Kind kind, bool is_loaded, double millions, int64_t batch) {
    const auto parameters = static_cast<int64_t>(millions * 1e6);
    return recipe({.kind = kind, .is_loaded = is_loaded, .parameters = parameters, .batch = batch})
        .lr;
  };
  const auto near = [](double value) { return doctest::Approx(value).epsilon(0.25); };
  // GPT-3's table, for its smallest and middle models.
  CHECK(rate(language, false, 125, 8) == near(6e-4));
  CHECK(rate(language, false, 760, 8) == near(2.5e-4));
  CHECK(rate(language, false, 1300, 8) == near(2e-4));
  CHECK(rate(language, true, 135, 8) == 2e-5f);
  CHECK(rate(language, true, 1000, 8) == 2e-5f);
  CHECK(rate(masked_language, false, 110, 32) == near(1e-4));
  CHECK(rate(text_classes, true, 110, 32) == near(3e-5));
  CHECK(rate(text_classes, true, 22, 32) == near(8e-5));
  CHECK(rate(images, false, 0.3, 128) == 0.1f);
  CHECK(rate(images, true, 0.3, 128) == 0.01f);
  // A rate belongs to a batch and follows it: for SGD linearly below that batch, for Adam by the
  // root up to a point.
  CHECK(rate(images, false, 11, 32) == doctest::Approx(0.025));
  CHECK(rate(images, false, 11, 256) == 0.1f);
  CHECK(rate(images, false, 11, 4096) == 0.1f);
  CHECK(rate(speech, false, 0.1, 32) == doctest::Approx(2e-2));
  CHECK(rate(speech, false, 0.1, 4096) == doctest::Approx(2e-2));
  CHECK(rate(speech, false, 0.1, 2) == doctest::Approx(5e-3));
}

TEST_CASE("recipe: schedule, passes and the reason" * doctest::test_suite("host")) {
  using enum TrainingWork::Kind;
  const TrainingRecipe tuned = recipe({.kind = language, .is_loaded = true, .batch = 8});
  CHECK(tuned.max_norm == 1);
  CHECK(tuned.passes == 1);
  CHECK(tuned.schedule_text() ==
        "warm-up over 5 % of the updates, then along a cosine to 0.1 of it, gradients clipped to a "
        "norm of 1");
  CHECK(tuned.reason.find("fine-tuned whole") != std::string::npos);
  const Schedule schedule = tuned.schedule(100);
  CHECK(schedule.factor(0) == doctest::Approx(0.2));  // five updates rise
  CHECK(schedule.factor(4) == doctest::Approx(1));
  CHECK(schedule.factor(100) == doctest::Approx(0.1));
  // Six updates have one that rises, and a single one has none.
  CHECK(tuned.schedule(6).warmup == 1);
  CHECK(tuned.schedule(1).warmup == 0);
  CHECK(recipe({.kind = text_classes, .is_loaded = true}).decay == Schedule::Kind::linear);
  // Few samples are seen more often.
  const auto passes = [](int64_t samples) {
    return recipe({.kind = text_classes, .is_loaded = true, .batch = 32, .samples = samples})
        .passes;
  };
  CHECK(passes(67000) == 3);
  CHECK(passes(640) == 5);
  CHECK(passes(20) == 20);
  CHECK_THROWS_AS(recipe({.batch = 0}), ValueError);
  CHECK_THROWS_AS(recipe({.parameters = -1}), ValueError);
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
