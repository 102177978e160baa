// Reports on checkpoint segments, compared with the peaks of real runs with and without each of
// them.
#include <cmath>
#include <functional>

#include "planner/follow/segment_report.h"
#include "tests/fixtures/random_program.h"
#include "tests/fixtures/unet.h"

namespace rw::test {

namespace {

// A forward pass whose segment `left_out` is not made (-1: all are), and the tensors that it must
// keep alive.
struct Pass {
  Tensor loss, kept = {};
};
using Forward = std::function<Pass(int left_out)>;

struct Measured {
  uint64_t peak = 0;
  double flops = 0;
  std::vector<SegmentReport> reports;
};

Measured measure(const Forward& forward, std::vector<Tensor>& leaves, int left_out) {
  Device& device = *default_device();
  device.reset_peak();
  Measured result;
  {
    const Pass pass = forward(left_out);
    if (left_out < 0) {
      const uint64_t live = device.live(), peak = device.memory_report().peak;
      result.reports = segment_reports(*Tape::current(), pass.loss);
      CHECK(device.live() == live);
      CHECK(device.memory_report().peak == peak);
    }
    pass.loss.backward();
  }
  result.peak = device.memory_report().peak;
  result.flops = total_flops(device.work());
  for (Tensor& t : leaves) t.set_grad({});
  return result;
}

struct Count {
  int segments = 0, harmful = 0;
};

// Checks that a segment has a problem exactly if the real peak is no higher without it, and that
// the numbers of its report are those of the real runs.
Count check_reports(const Forward& forward, std::vector<Tensor>& leaves) {
  const Measured all = measure(forward, leaves, -1);
  Count count;
  for (const SegmentReport& report : all.reports) {
    INFO("segment " << report.segment << " in " << report.parent << " of " << report.records << ": "
                    << report.problem);
    const Measured without = measure(forward, leaves, report.segment);
    INFO("real " << all.peak << " without " << without.peak << ", reported " << report.peak
                 << " and " << report.peak_without);
    const bool harms = without.peak <= all.peak;
    if (report.records > 0) {
      CHECK(report.peak_without > 0);
      // Leaves that no op reads are alive in the real run only.
      CHECK(static_cast<int64_t>(without.peak - all.peak) ==
            static_cast<int64_t>(report.peak_without - report.peak));
      CHECK(report.replay.flops == std::max(0.0, all.flops - without.flops));
    }
    if (harms) CHECK_FALSE(report.problem.empty());
    if (!harms && report.problem.find("together") == std::string::npos)
      CHECK(report.problem.empty());
    ++count.segments;
    count.harmful += harms;
  }
  return count;
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "segment reports: random marks that do not lower the peak are named" *
                                 doctest::test_suite("host")) {
  std::vector<Tensor> leaves = program_leaves();
  int segments = 0, harmful = 0, raised = 0, silent = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    const auto forward = [&](bool marks, int left_out) {
      manual_seed(seed);
      auto [loss, other] = Program(seed, marks, leaves, left_out).stay_on_tape().keep_all().run();
      return Pass{std::move(loss), std::move(other)};
    };
    const Forward marked = [&](int left_out) { return forward(true, left_out); };
    const Count count = check_reports(marked, leaves);
    segments += count.segments;
    harmful += count.harmful;
    // Marks that raise the peak only together are reported, too.
    const uint64_t plain = measure([&](int) { return forward(false, -1); }, leaves, 0).peak;
    const Measured all = measure(marked, leaves, -1);
    if (all.peak <= plain) continue;
    ++raised;
    bool named = false;
    for (const SegmentReport& report : all.reports) named |= !report.problem.empty();
    silent += !named;
  }
  MESSAGE(harmful << " of " << segments << " segments do not lower the peak; marks raise it in "
                  << raised << " of 60 programs");
  CHECK(silent == 0);
  CHECK(raised > 0);
  CHECK(harmful > 20);
  CHECK(segments - harmful > 20);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "segment reports: marks in a convolutional net" * doctest::test_suite("host")) {
  manual_seed(3);
  SmallUNet net(4);
  const Tensor image = rand({1, 21, 27, 3});
  Count sum;
  for (const uint32_t marks : {0x7fu, 0x15u, 0x62u, 0x08u}) {
    INFO("marks " << marks);
    const Forward forward = [&](int left_out) {
      uint32_t bits = marks;
      for (int block = 0, segment = 0; block < SmallUNet::blocks; ++block)
        if ((marks >> block & 1) && segment++ == left_out) bits &= ~(1u << block);
      return Pass{mean(square(net.forward(image, bits)))};
    };
    const Count count = check_reports(forward, net.weights());
    sum.segments += count.segments;
    sum.harmful += count.harmful;
  }
  CHECK(sum.harmful > 0);
  CHECK(sum.harmful < sum.segments);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "segment reports: backward hands them over once" * doctest::test_suite("host")) {
  const Tensor x = leaf(256);
  int calls = 0;
  const auto step = [&] {
    Tensor y = x;
    {
      const auto segment = checkpoint();
      y = exp(y + 1.0f);
    }
    sum(square(y)).backward();
    Tensor(x).set_grad({});
  };
  report_segments(tape(), [&](const std::vector<SegmentReport>& reports) {
    ++calls;
    REQUIRE(reports.size() == 1);
    CHECK(contains(reports[0].problem, "leave this segment out"));
  });
  step();
  step();
  CHECK(calls == 1);
}

}  // namespace rw::test
