// A watched training keeps its bits, takes little memory and does not wait for the device; and the
// ranges of gradients.
#include <limits>

#include "core/base/rng.h"
#include "models/resnet.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "optim/accumulation/accumulate.h"
#include "optim/numerics/gradient_ranges.h"
#include "optim/numerics/numerics_monitor.h"
#include "optim/sgd.h"
#include "shaders/params.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/forecast_fixture.h"
#include "tests/fixtures/guard_backend.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// Takes steps of a small network in f16 with dropout, batch norms, and recomputed blocks if wanted.
class MonitoredNet {
 public:
  explicit MonitoredNet(int blocks) : model_(resnet_cifar(8, 1, BlockKind::basic, 10)) {
    model_.set_checkpoint(blocks);
    optimizer.set_scaler(LossScaler::dynamic(0x1p24f, 2, 0.5f, 3));  // falls, then grows
  }
  void step(int t) {
    {
      const Tensor x = tensor(some_values(2 * 16 * 16 * 3, t), {2, 16, 16, 3}, DType::f16);
      const std::vector<int32_t> labels = {1, t % 10};
      Tensor loss;
      {
        const Autocast autocast(DType::f16);
        loss = cross_entropy(model_(x), tensor(labels, {2}));
      }
      optimizer.backward(loss, 2);
      optimizer.step();
      optimizer.zero_grad();
    }
    default_device()->end_step();
  }
  std::vector<Values> values() const {
    std::vector<Values> all = {optimizer.control().to_vector()};
    for (const Tensor& p : model_.parameters()) all.push_back(p.to_vector());
    return all;
  }

 private:
  ResNet model_;

 public:
  Accumulate optimizer{SGD(one_group(model_.parameters()), {.lr = 0.1f, .momentum = 0.9f}), 2};
};

void watched_steps() {
  manual_seed(3);
  MonitoredNet net(1);
  NumericsMonitor monitor(net.optimizer);
  const GradientRanges ranges(net.optimizer);
  for (int t = 0; t < 6; ++t) net.step(t);
}

}  // namespace

TEST_CASE("numerics: training keeps its bits, and a step allocates nothing more") {
  on_each_device([] {
    if (default_device()->info().backend == "vulkan" && is_brief()) return;
    for (const int blocks : {0, 1}) {
      uint64_t own = 0;  // bytes of the monitor
      const auto run = [&](bool is_watched) {
        manual_seed(3);
        MonitoredNet net(blocks);
        std::optional<NumericsMonitor> monitor;
        std::optional<GradientRanges> ranges;
        const uint64_t before = default_device()->memory_report().live;
        if (is_watched) ranges.emplace(net.optimizer), monitor.emplace(net.optimizer);
        own = default_device()->memory_report().live - before;
        default_device()->reset_peak();
        for (int t = 0; t < 24; ++t) net.step(t);
        const uint64_t peak = default_device()->memory_report().peak;
        if (is_watched) {
          const NumericsReport report = monitor->report();
          CHECK(report.steps == 24);
          CHECK(report.left_out == 0);
          REQUIRE(report.overflow);
          CHECK(report.overflow->kind == ValueKind::gradient);
        }
        return std::pair(net.values(), peak);
      };
      const auto [plain, peak] = run(false);
      const auto [watched, watched_peak] = run(true);
      CHECK(watched == plain);
      CHECK(own > 0);
      CHECK(own < uint64_t{512} * 1024);
      CHECK(watched_peak == peak + own);
      CHECK(plain[0][STATE_SKIPPED] > 0);
      CHECK(plain[0][STATE_UPDATES] > 0);
    }
  });
}

namespace {

// Counts how often the host waits.
class WaitCounter : public GuardBackend {
 public:
  explicit WaitCounter(std::shared_ptr<Backend> inner) : GuardBackend(std::move(inner), false) {}
  void read(BufferRange source, void* target) override {
    ++waits;
    GuardBackend::read(source, target);
  }
  void synchronize() override {
    ++waits;
    GuardBackend::synchronize();
  }
  uint64_t waits = 0;
};

}  // namespace

TEST_CASE("numerics: no step waits for the device") {
  on_each_device([] {
    auto counter = std::make_unique<WaitCounter>(open_backend(default_device()->info().backend));
    const WaitCounter& seen = *counter;
    set_default_device(std::move(counter));
    Tensor w = parameter(some_values(16), "layer.weight");
    Accumulate sgd(SGD({w}), 2);
    sgd.set_scaler(LossScaler::dynamic(0x1p18f));
    NumericsMonitor monitor(sgd);
    const GradientRanges ranges(sgd);
    const uint64_t before = seen.waits;
    for (int t = 0; t < 8; ++t) {
      sgd.backward(sum(cast(cast(w, DType::f16) * 1.0f, DType::f32)));
      sgd.step();
      sgd.zero_grad();
    }
    CHECK(seen.waits == before);
    CHECK(monitor.report().overflow);
    CHECK(ranges.read()[0].stored.elements() == 16);
    CHECK(seen.waits > before);
  });
}

TEST_CASE("numerics: a dry run knows the memory of watched steps") {
  on_each_device([] {
    if (default_device()->info().backend == "vulkan" && is_brief()) return;
    check_forecast(watched_steps);
  });
}

TEST_CASE("gradient ranges: counts with and without the loss scale") {
  on_each_device([] {
    Tensor w = parameter({1, 1, 1, 1, 1}, "w"), unused = parameter({1}, "unused");
    SGD sgd({w, unused});
    sgd.set_scaler(LossScaler::fixed(1024));
    sgd.backward(loss_with(w, {0x1p-20f, -0x1p-24f, 0.5f, 0, -2}));
    const std::vector<GradientRange> ranges = gradient_ranges(sgd);
    REQUIRE(ranges.size() == 2);
    CHECK(ranges[0].name == "w");
    CHECK(ranges[0].scale == 1024);
    CHECK(ranges[0].stored.elements() == 5);
    CHECK(ranges[0].stored.zeros == 1);
    CHECK(ranges[0].stored.normals == 4);  // 2^-14 is the least one
    CHECK(ranges[0].stored.denormals == 0);
    CHECK(ranges[0].unscaled == 2);
    CHECK(ranges[0].stored.largest == 2048);
    CHECK(ranges[0].stored.least == 0x1p-14f);
    CHECK(ranges[1].stored.elements() == 0);
    const std::string table = gradient_range_table(ranges);
    CHECK(contains(table, "their loss scale of 1024,"));
    CHECK(contains(table, "\nw "));
    CHECK(contains(table, "\nunused    no gradient"));
  });
}

TEST_CASE("gradient ranges: of the last update, with the scale before it") {
  on_each_device([] {
    Tensor w = parameter({1, 1}, "w");
    Accumulate sgd(SGD({w}), 2);
    sgd.set_scaler(LossScaler::dynamic(16, 2, 0.5f, 1));
    const GradientRanges ranges(sgd, 2);
    const auto window = [&](float gradient) {
      for (int i = 0; i < 2; ++i) {
        sgd.backward(loss_with(w, {gradient, i == 0 ? std::numeric_limits<float>::infinity() : 1}));
        sgd.step();
        sgd.zero_grad();
      }
    };
    window(3);
    CHECK(ranges.read()[0].scale == 16);  // now it is 8
    CHECK(ranges.read()[0].stored.largest == 96);
    CHECK(ranges.read()[0].stored.infinities == 1);
    window(5);  // not measured
    CHECK(ranges.read()[0].stored.largest == 96);
    window(5);
    CHECK(ranges.read()[0].scale == 4);
    CHECK(ranges.read()[0].stored.largest == 40);
  });
}
