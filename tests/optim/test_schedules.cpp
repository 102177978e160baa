// Schedules, compared with PyTorch 2.14's factors, on the host and on the device; Plateau.
#include <cmath>
#include <limits>

#include "optim/base/plateau.h"
#include "optim/schedules/recipe.h"
#include "optim/sgd.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

struct ScheduleCase {
  std::string name;
  Schedule schedule;
  std::vector<double> factors;
};

// torch.optim.lr_scheduler with a learning rate of 1.
const ScheduleCase schedules[] = {
    {"OneCycleLR(total_steps=20)",
     Schedule::one_cycle(20),
     {0.04,        0.131671843, 0.371671843, 0.668328157, 0.908328157,  1,        0.987464006,
      0.950484632, 0.890916178, 0.811745654, 0.716943002, 0.611262022,  0.500002, 0.388741978,
      0.283060998, 0.188258346, 0.109087822, 0.049519368, 0.0125399938, 4e-06}},
    {"OneCycleLR(total_steps=11, pct_start=0.25, div_factor=10, final_div_factor=50)",
     Schedule::one_cycle(11, 0.25f, 10, 50),
     {0.1, 0.65013442, 0.997740489, 0.944528889, 0.827775506, 0.664206914, 0.477256624, 0.293707909,
      0.139856715, 0.0377444014, 0.002}},
    {"CosineAnnealingWarmRestarts(3, 2, eta_min=0.1)",
     Schedule::restarts(3, 2, 0, 0.1f),
     {1,           0.775, 0.325,       1,           0.939711432, 0.775, 0.55,        0.325,
      0.160288568, 1,     0.984666622, 0.939711432, 0.868198052, 0.775, 0.66646857,  0.55,
      0.43353143,  0.325, 0.231801948, 0.160288568, 0.115333378, 1,     0.996150188, 0.984666622}},
    {"CosineAnnealingWarmRestarts(4)",
     Schedule::restarts(4),
     {1, 0.853553391, 0.5, 0.146446609, 1, 0.853553391, 0.5, 0.146446609, 1, 0.853553391}},
    {"MultiStepLR([2, 5, 5, 7], 0.5)",
     Schedule::multistep({2, 5, 5, 7}, 0.5f),
     {1, 1, 0.5, 0.5, 0.5, 0.125, 0.125, 0.0625, 0.0625, 0.0625}},
    {"ExponentialLR(0.9)", Schedule::exponential(0.9f), {1, 0.9, 0.81, 0.729, 0.6561, 0.59049}},
};

std::vector<float> rates(const std::vector<double>& metrics, const PlateauOptions& options) {
  Tensor w = parameter({0});
  SGD sgd({w}, {.lr = 1});
  Plateau plateau(sgd, options);
  std::vector<float> all;
  for (const double metric : metrics) {
    const float before = sgd.base_learning_rate();
    const bool fell = plateau.step(metric);
    CHECK(fell == (sgd.base_learning_rate() < before));
    all.push_back(sgd.base_learning_rate());
  }
  return all;
}

}  // namespace

TEST_CASE("schedules: PyTorch's factors, on host and device") {
  on_each_device([] {
    for (const ScheduleCase& c : schedules) {
      CAPTURE(c.name);
      Tensor w = parameter({0});
      SGD sgd({w}, {.lr = 1});
      sgd.set_schedule(c.schedule);
      for (size_t t = 0; t < c.factors.size(); ++t) {
        CHECK(std::abs(c.schedule.factor(t) - c.factors[t]) < 1e-6);
        w.copy_(zeros({1}));
        w.set_grad(ones({1}));
        sgd.step();
        CHECK(std::abs(-w.item() - c.factors[t]) < 1e-5);
      }
    }
  });
}

TEST_CASE("schedules: the Transformer's, and a warm-up before the others") {
  on_each_device([] {
    const Schedule noam = Schedule::noam(512, 4);
    Tensor w = parameter({0});
    SGD sgd({w}, {.lr = 1});
    sgd.set_schedule(noam);
    for (int t = 0; t < 12; ++t) {
      const double n = t + 1;
      const double wanted =
          std::pow(512, -0.5) * std::min(std::pow(n, -0.5), n * std::pow(4, -1.5));
      CHECK(noam.factor(t) == doctest::Approx(wanted).epsilon(1e-6));
      w.copy_(zeros({1}));
      w.set_grad(ones({1}));
      sgd.step();
      CHECK(-w.item() == doctest::Approx(wanted).epsilon(1e-5));
    }
  });
  const Schedule warm = Schedule::restarts(3, 2, 5);
  CHECK(warm.factor(1) == doctest::Approx(0.4));
  for (int t = 0; t < 20; ++t)
    CHECK(warm.factor(t + 5) == doctest::Approx(Schedule::restarts(3, 2).factor(t)));
  CHECK(Schedule::one_cycle(20).factor(500) == doctest::Approx(4e-6));
  CHECK(Schedule::multistep({3}, 0.5f, 5).factor(5) == 0.5);
}

TEST_CASE("schedules: mistakes are typed errors" * doctest::test_suite("host")) {
  CHECK_THROWS_AS(Schedule::restarts(0), ValueError);
  CHECK_THROWS_AS(Schedule::noam(512, 0), ValueError);
  CHECK_THROWS_AS(Schedule::one_cycle(3), ValueError);
  CHECK_THROWS_AS(Schedule::exponential(0), ValueError);
  CHECK_THROWS_WITH_AS(Schedule::multistep({5, 3}),
                       "[schedule] needs at most 8 milestones in rising order, got 5, 3",
                       ValueError);
  CHECK_THROWS_AS(Schedule::multistep(std::vector<uint32_t>(9, 1)), ValueError);
}

TEST_CASE("plateau: ReduceLROnPlateau's rates" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const double nan = std::nan("");
  const std::vector<double> metrics = {5, 4, 4,   4, 4, 3, 3.0001, 2.9999, 3,
                                       3, 3, nan, 3, 3, 1, 1,      1,      1};
  std::vector<double> rising, around_zero;
  for (const double m : metrics) rising.push_back(6 - m), around_zero.push_back(m - 3.5);
  CHECK(rates(metrics, {.factor = 0.5, .patience = 2}) ==
        Values{1, 1, 1, 1, 0.5f, 0.5f, 0.5f, 0.5f, 0.25f, 0.25f, 0.25f, 0.125f, 0.125f, 0.125f,
               0.125f, 0.125f, 0.125f, 0.0625f});
  CHECK(rates(rising,
              {.maximize = true, .factor = 0.5, .patience = 1, .cooldown = 2, .min_lr = 0.2}) ==
        Values{1, 1, 1, 0.5f, 0.5f, 0.5f, 0.5f, 0.25f, 0.25f, 0.25f, 0.25f, 0.2f, 0.2f, 0.2f, 0.2f,
               0.2f, 0.2f, 0.2f});
  const Values absolute = rates(metrics, {.factor = 0.1,
                                          .patience = 0,
                                          .threshold = 0.5,
                                          .threshold_is_absolute = true,
                                          .min_lr = 1e-3});
  std::vector<double> wanted(18, 1e-3);
  wanted[0] = wanted[1] = 1, wanted[2] = 0.1, wanted[3] = 0.01;
  CHECK(largest_difference(absolute, wanted) < 1e-7);
  Values quirk(18, 0.5f);
  quirk[0] = quirk[1] = quirk[2] = 1;
  CHECK(rates(around_zero, {.factor = 0.5, .patience = 1, .threshold = 0.3}) == quirk);
  // Neither a value that beats the best by the margin alone is better, nor a first infinity.
  CHECK(rates({2, 1.5, 1.5},
              {.factor = 0.5, .patience = 0, .threshold = 0.5, .threshold_is_absolute = true}) ==
        Values{1, 0.5f, 0.25f});
  CHECK(rates({infinity, 5, 5}, {.factor = 0.5, .patience = 0}) == Values{0.5f, 0.5f, 0.25f});
  CHECK(rates({5, 5, 5}, {.factor = 0.5, .patience = 0, .eps = 0.25}) == Values{1, 0.5f, 0.5f});
}

TEST_CASE("plateau: state, and mistakes" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  Tensor a = parameter({0}), b = parameter({0});
  SGD first({a}, {.lr = 1}), second({b}, {.lr = 1});
  Plateau plateau(first, {.patience = 1}), resumed(second, {.patience = 1});
  for (const double metric : {3, 3, 3, 3}) plateau.step(metric);
  resumed.load_state(plateau.state());
  CHECK(second.base_learning_rate() == first.base_learning_rate());
  for (const double metric : {3, 2, 2, 2}) CHECK(plateau.step(metric) == resumed.step(metric));
  CHECK(second.base_learning_rate() == first.base_learning_rate());
  CHECK_THROWS_AS(Plateau(first, {.factor = 1}), ValueError);
  CHECK_THROWS_AS(Plateau(first, {.min_lr = -1}), ValueError);
}

TEST_CASE("schedules: linear is BERT's but for an update of rate 0" * doctest::test_suite("host")) {
  // The schedule get_linear_schedule_with_warmup of Hugging Face's transformers.
  constexpr int warmup = 4, total = 10;
  const auto reference = [](double t) {
    return t < warmup ? t / warmup : std::max(0.0, (total - t) / (total - warmup));
  };
  const Schedule schedule = Schedule::linear(total, warmup);
  for (int t = 0; t < total + 3; ++t)
    CHECK(schedule.factor(t) == doctest::Approx(reference(t < warmup ? t + 1 : t)));
}

TEST_CASE("schedules: the device follows the closed form") {
  const Schedule cases[] = {Schedule::constant(),          Schedule::constant(3),
                            Schedule::cosine(10, 2, 0.1f), Schedule::linear(8, 2),
                            Schedule::step(3, 0.5f),       Schedule::polynomial(8, 2, 1, 0.2f)};
  on_each_device([&] {
    for (const Schedule& schedule : cases) {
      CAPTURE(schedule.kind);
      Tensor w = parameter({0});
      SGD sgd({w}, {.lr = 1});
      sgd.set_schedule(schedule);
      double x = 0;
      for (uint64_t t = 0; t < 12; ++t) {
        one_step(sgd, w, {1});
        x -= schedule.factor(t);
        CHECK(w.item() == doctest::Approx(x).epsilon(1e-5));
        CHECK(sgd.learning_rate() == doctest::Approx(schedule.factor(t)));
      }
    }
  });
  CHECK(Schedule::cosine(10, 2).factor(0) == 0.5);
  CHECK(Schedule::cosine(10, 2).factor(6) == doctest::Approx(0.5));
  CHECK(Schedule::cosine(10, 2).factor(99) == doctest::Approx(0));
  CHECK(Schedule::linear(8, 2, 0.5f).factor(5) == doctest::Approx(0.75));
  CHECK(Schedule::step(3, 0.5f).factor(7) == 0.25);
  CHECK_THROWS_AS(Schedule::cosine(5, 5), ValueError);
}

TEST_CASE("schedules: a skipped update does not advance them") {
  on_each_device([] {
    Tensor w = parameter({0});
    SGD sgd({w}, {.lr = 1});
    sgd.set_schedule(Schedule::linear(4));
    one_step(sgd, w, {std::numeric_limits<float>::infinity()});
    one_step(sgd, w, {1});
    CHECK(w.item() == -1);
  });
}

TEST_CASE("recipe: few images are seen more often, by a rate that follows the batch") {
  struct Images {
    int64_t batch, samples, passes;
    float lr;
  };
  for (const auto& [batch, samples, passes, lr] : {Images{32, 96, 107, 0.025f},
                                                   {16, 96, 107, 0.0125f},
                                                   {8, 48, 214, 0.00625f},
                                                   {32, 340, 31, 0.025f},
                                                   {32, 640, 30, 0.025f},
                                                   {128, 50'000, 30, 0.1f},
                                                   {256, 50'000, 30, 0.1f},
                                                   {128, 0, 30, 0.1f}}) {
    CAPTURE(batch);
    CAPTURE(samples);
    const TrainingRecipe known =
        recipe({.kind = TrainingWork::Kind::images, .batch = batch, .samples = samples});
    CHECK(known.passes == passes);
    CHECK(known.lr == doctest::Approx(lr));
    const std::string why = fmt::format("; {} passes, since {} samples are few", passes, samples);
    CHECK((known.reason.find(why) != std::string::npos) == (passes > 30));
  }
}
