// NumericsMonitor on planted faults: it names the right op, tensor and step.
#include <cmath>
#include <functional>
#include <limits>

#include "core/autograd/checkpoint.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "optim/accumulation/accumulate.h"
#include "optim/numerics/gradient_ranges.h"
#include "optim/numerics/numerics_monitor.h"
#include "optim/sgd.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// Returns the loss of step t, from 1, of a parameter of 16 elements.
using LossOf = std::function<Tensor(const Tensor& w, uint64_t t)>;

struct MonitoredTraining {
  LossOf loss;
  LossScaler scaler = LossScaler::none();
  uint64_t steps = 4;
  uint32_t micro_batches = 1;
  float learning_rate = 0;
  MonitorOptions options = {};
};

// The reports, and the parameter at the end.
struct MonitorOutcome {
  NumericsReport report;
  std::string diagnosis;
  Values w;
};

MonitorOutcome train_monitored(const MonitoredTraining& plan, bool is_watched = true) {
  Tensor w = parameter(some_values(16), "layer.weight");
  Accumulate sgd(SGD({w}, {.lr = plan.learning_rate}), plan.micro_batches);
  sgd.set_scaler(plan.scaler);
  std::optional<NumericsMonitor> monitor;
  if (is_watched) monitor.emplace(sgd, plan.options);
  for (uint64_t t = 1; t <= plan.steps; ++t) {
    sgd.backward(plan.loss(w, t));
    sgd.step();
    sgd.zero_grad();
  }
  MonitorOutcome outcome;
  if (is_watched) {
    outcome.report = monitor->report();
    outcome.diagnosis = diagnose(sgd, outcome.report);
  }
  outcome.w = w.to_vector();
  return outcome;
}

Tensor filled(float value) {
  return tensor(Values(16, value), {16});
}
Tensor half(const Tensor& x) {
  return cast(x, DType::f16);
}
// Returns a chain whose forward is finite for small factors: casts, a product, and a sum.
Tensor cast_chain(const Tensor& w, float factor) {
  return sum(cast(half(w) * half(filled(factor)), DType::f32));
}

}  // namespace

TEST_CASE("numerics: an op that overflows in the forward of f16") {
  on_each_device([] {
    const auto loss = [](const Tensor& w, uint64_t t) {
      const Tensor x = half(w) + half(filled(t == 3 ? 12 : 2));  // exp(12) is 162755
      return mean(cast(exp(x), DType::f32));
    };
    const NumericsReport report =
        train_monitored({.loss = loss, .scaler = LossScaler::fixed(8)}).report;
    CHECK(report.steps == 4);
    REQUIRE(report.overflow);
    CHECK(report.overflow->kind == ValueKind::output);
    CHECK(report.overflow->step == 3);
    CHECK(report.overflow->update == 3);
    CHECK(report.overflow->op == "exp (op 3)");
    CHECK(report.overflow->tensor == "output 0");
    CHECK(report.overflow->dtype == DType::f16);
    CHECK(report.overflow->infinities > 0);
    CHECK(report.overflow->scale == 8);
    CHECK(contains(report.str(), "no loss scale helps: keep this op in f32"));
    CHECK(!report.underflow);
  });
}

TEST_CASE("numerics: a matrix product of f16 that overflows, with its parameter's name") {
  on_each_device([] {
    const auto loss = [](const Tensor& w, uint64_t t) {
      const Autocast autocast(DType::f16);
      const Tensor x = tensor(Values(32, t == 2 ? 60000 : 1), {2, 16});
      const Tensor ones = reshape(w * w + filled(1), {1, 16});
      const Tensor hidden = linear(x, reshape(w, {1, 16}));
      return mean(hidden) + mean(linear(x, ones));
    };
    const NumericsReport report = train_monitored({.loss = loss}).report;
    REQUIRE(report.overflow);
    CHECK(report.overflow->kind == ValueKind::output);
    CHECK(report.overflow->step == 2);
    CHECK(contains(report.overflow->op, "linear"));
    CHECK(report.overflow->dtype == DType::f16);
  });
}

TEST_CASE("numerics: a gradient that the loss scale makes too large") {
  on_each_device([] {
    const auto loss = [](const Tensor& w, uint64_t) { return cast_chain(w, 0.5f); };
    const MonitorOutcome fixed =
        train_monitored({.loss = loss, .scaler = LossScaler::fixed(0x1p20f)});
    REQUIRE(fixed.report.overflow);
    const NumericsFinding& found = *fixed.report.overflow;
    CHECK(found.kind == ValueKind::gradient);
    CHECK(found.step == 1);
    CHECK(found.op == "cast (op 3)");
    CHECK(found.tensor == "gradient of output 0 of mul of 'layer.weight' (op 2)");
    CHECK(found.infinities == 16);
    CHECK(found.scale == 0x1p20f);
    CHECK(contains(found.str(), "a fixed one should be lower than 1.04858e+06"));
    CHECK(contains(fixed.diagnosis, "the scale cannot fall"));

    // Growing from 2^13 by 2 per update, the scale is too large at the fourth update.
    const MonitorOutcome grown = train_monitored(
        {.loss = loss, .scaler = LossScaler::dynamic(8192, 2, 0.5f, 1), .steps = 6});
    REQUIRE(grown.report.overflow);
    CHECK(grown.report.overflow->step == 4);
    CHECK(grown.report.overflow->scale == 65536);
    CHECK(grown.report.overflow->op == "cast (op 3)");
  });
}

TEST_CASE("numerics: gradients that are denormal, or nothing, at scale 1") {
  on_each_device([] {
    const auto loss = [](const Tensor& w, uint64_t) {
      return affine(cast_chain(w, 0.5f), 3e-6f, 0);
    };
    const MonitorOutcome small = train_monitored({.loss = loss});
    CHECK(!small.report.overflow);
    REQUIRE(small.report.underflow);
    const NumericsFinding& found = *small.report.underflow;
    CHECK(found.kind == ValueKind::gradient);
    CHECK(found.step == 1);
    CHECK(found.op == "cast (op 3)");
    CHECK(found.denormals == 16);
    CHECK(found.normals == 0);
    CHECK(contains(found.str(), "16 of 16 elements that are not 0 are denormal"));
    CHECK(contains(small.diagnosis, "In 100 % of the 16-bit gradients most values are denormal"));
    CHECK(!train_monitored({.loss = loss, .scaler = LossScaler::fixed(1024)}).report.underflow);

    const auto tiny = [](const Tensor& w, uint64_t) {  // the product's gradient is 0 in f16
      return affine(sum(cast(half(w) * half(filled(0x1p-14f)), DType::f32)), 0x1p-13f, 0);
    };
    const NumericsReport lost = train_monitored({.loss = tiny}).report;
    REQUIRE(lost.vanished);
    CHECK(contains(lost.vanished->tensor, "gradient of output 0 of cast"));
    CHECK(contains(lost.vanished->op, "mul"));
    CHECK(contains(lost.str(), "nothing but zeros in every step"));
  });
}

TEST_CASE("numerics: a NaN in the data, and in a parameter") {
  on_each_device([] {
    const auto data = [](const Tensor& w, uint64_t t) {
      Values x(16, 1);
      if (t == 2) x[5] = std::numeric_limits<float>::quiet_NaN();
      return mean(w * tensor(x, {16}));
    };
    const NumericsReport report = train_monitored({.loss = data}).report;
    REQUIRE(report.overflow);
    CHECK(report.overflow->kind == ValueKind::input);
    CHECK(report.overflow->step == 2);
    CHECK(report.overflow->op == "mul (op 1)");
    CHECK(report.overflow->tensor == "input 1");
    CHECK(report.overflow->nans == 1);
    CHECK(contains(report.str(), "came from outside"));

    const auto broken = [](const Tensor& w, uint64_t t) {
      if (t == 3) Tensor(w).copy_from(Values(16, infinity));
      return mean(w * w);
    };
    const NumericsReport bad = train_monitored({.loss = broken}).report;
    REQUIRE(bad.overflow);
    CHECK(bad.overflow->kind == ValueKind::input);
    CHECK(bad.overflow->step == 3);
    CHECK(bad.overflow->tensor == "input 0 'layer.weight'");
  });
}

TEST_CASE("numerics: an op's own gradient that is no number") {
  on_each_device([] {
    const auto loss = [](const Tensor& w, uint64_t t) {  // sqrt'(0) * 0
      const Tensor zero = affine(w, t == 2 ? 0.0f : 1e-3f, t == 2 ? 0 : 4);
      return sum(sqrt(zero) * filled(t == 2 ? 0 : 1));
    };
    const NumericsReport report = train_monitored({.loss = loss}).report;
    REQUIRE(report.overflow);
    CHECK(report.overflow->kind == ValueKind::gradient);
    CHECK(report.overflow->step == 2);
    CHECK(contains(report.overflow->op, "sqrt"));
    CHECK(report.overflow->nans == 16);
    CHECK(contains(report.str(), "as that of a root or a norm at 0"));
  });
}

TEST_CASE("numerics: masks of -infinity are no overflow") {
  on_each_device([] {
    const auto loss = [](const Tensor& w, uint64_t t) {
      Values mask(16);
      for (size_t i = 0; i < mask.size(); i += 3) mask[i] = -infinity;
      const Tensor attention = softmax(w + tensor(mask, {16}));
      return sum(attention * filled(1)) + mean(log(filled(t == 3 ? 0 : 2) * exp(w)));
    };
    const NumericsReport healthy = train_monitored({.loss = loss, .steps = 2}).report;
    CHECK(!healthy.overflow);
    CHECK(healthy.harmless.size() == 2);  // the mask, and the sum with it
    CHECK(contains(healthy.str(), "without harm to losses and gradients: input 1 of add (op 1)"));
    const NumericsReport report = train_monitored({.loss = loss}).report;
    REQUIRE(report.overflow);
    CHECK(report.overflow->step == 3);
    CHECK(contains(report.overflow->op, "log"));
    CHECK(report.harmless.size() == 2);
  });
}

TEST_CASE("numerics: overflows inside windows of Accumulate") {
  on_each_device([] {
    for (const uint64_t bad : {4u, 5u, 6u}) {
      const auto loss = [&](const Tensor& w, uint64_t t) {
        return cast_chain(w, t == bad ? 4 : 0.5f);  // 4 * 2^15 is no f16
      };
      const NumericsReport report = train_monitored({.loss = loss,
                                                     .scaler = LossScaler::dynamic(0x1p15f),
                                                     .steps = 9,
                                                     .micro_batches = 3})
                                        .report;
      REQUIRE(report.overflow);
      CHECK(report.steps == 9);
      CHECK(report.overflow->step == bad);
      CHECK(report.overflow->update == 2);
      CHECK(report.overflow->kind == ValueKind::gradient);
      CHECK(contains(report.overflow->op, "mul"));
    }
  });
}

TEST_CASE("numerics: segments are counted once, and are named") {
  on_each_device([] {
    for (const bool segments : {false, true}) {
      INFO("segments: ", segments);
      const auto loss = [&](const Tensor& w, uint64_t t) {
        Tensor x = half(w);
        for (int layer = 0; layer < 3; ++layer) {
          const Tensor factor = half(filled(layer == 1 && t == 3 ? 60 : 0.1f));
          const CheckpointScope segment(segments);
          x = exp(x * factor);
        }
        return mean(cast(x, DType::f32));
      };
      const NumericsReport report = train_monitored({.loss = loss}).report;
      REQUIRE(report.overflow);
      CHECK(report.overflow->step == 3);
      CHECK(report.overflow->op == "exp (op 5)");
      CHECK(report.overflow->segment == (segments ? 1 : -1));
      CHECK(report.values == 4 + 9 + 9 + 1);  // inputs, outputs, their gradients, the parameter's
    }
  });
}

TEST_CASE("numerics: one update in so many is watched") {
  on_each_device([] {
    const auto loss = [&](const Tensor& w, uint64_t t) { return cast_chain(w, t >= 5 ? 4 : 0.5f); };
    MonitoredTraining plan{
        .loss = loss, .scaler = LossScaler::fixed(0x1p15f), .steps = 12, .micro_batches = 2};
    plan.options.every = 2;  // updates 1, 3 and 5: steps 1, 2, 5, 6, 9, 10
    const NumericsReport report = train_monitored(plan).report;
    CHECK(report.steps == 6);
    REQUIRE(report.overflow);
    CHECK(report.overflow->step == 5);
    CHECK(report.overflow->update == 3);
    plan.options = {.values = 3};  // inputs and outputs of the forward's beginning
    const NumericsReport few = train_monitored(plan).report;
    CHECK(few.values == 3);
    CHECK(few.left_out > 0);
    CHECK(contains(few.str(), "allow more values"));
  });
}

TEST_CASE("numerics: forwards without a backward leave no trace") {
  on_each_device([] {
    const auto loss = [](const Tensor& w, uint64_t t) {
      sum(w * filled(infinity));  // no backward follows
      return cast_chain(w, t == 3 ? infinity : 1);
    };
    const NumericsReport report = train_monitored({.loss = loss}).report;
    CHECK(report.steps == 4);
    REQUIRE(report.overflow);
    CHECK(report.overflow->step == 3);
    CHECK(report.overflow->kind == ValueKind::input);
    CHECK(contains(report.overflow->op, "mul (op 2)"));
    CHECK(report.harmless.empty());
  });
}

TEST_CASE("numerics: misuse is refused") {
  on_each_device([] {
    Tensor w = parameter({1});
    SGD sgd({w});
    CHECK_THROWS_AS(NumericsMonitor(sgd, {.every = 0}), ValueError);
    CHECK_THROWS_AS(GradientRanges(sgd, 0), ValueError);
  });
}
