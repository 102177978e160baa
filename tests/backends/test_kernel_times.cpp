// The times of kernels: the conversion of timestamps, and Backend::kernel_times on both backends.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "backends/open.h"
#include "backends/vulkan/commands/timing.h"
#include "backends/vulkan/vulkan_backend.h"
#include "shaders/params.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/kernel_runner.h"

namespace {

using namespace rw;
using test::Env;
using test::KernelRunner;
using test::Without;
using vulkan::StepTimes;
using vulkan::TimedStep;

void run_fill(KernelRunner& runner, const Binding& y, uint32_t value) {
  const auto n = static_cast<uint32_t>(y.range.size / 4);
  runner.run("fill", {y}, kernels::FillParams{{0}, n, value}, {}, {(n + 7) / 8, 1, 1});
}

// Multiplies [16, k] x [k, 16] with a long k, which devices split, so that one call has several
// modules.
void run_matmul(KernelRunner& runner, const Binding& a, const Binding& b, const Binding& c) {
  const auto k = static_cast<uint32_t>(a.range.size / 64);
  kernels::MatmulParams p{.m = 16, .n = 16, .k = k, .alpha = 1};
  p.batch[0] = p.batch[1] = p.a_col = p.b_col = 1;
  p.a_row = k;
  p.b_row = p.c_row = 16;
  const std::array<Binding, 3> bindings{a, b, c};
  test::run_with_workspace(runner.backend(), {"matmul", bindings, std::as_bytes(std::span(&p, 1))});
}

// Checks the entries of `calls` calls, in order and on one clock.
void check_order(const std::vector<KernelTime>& times, uint64_t calls) {
  REQUIRE(times.size() >= calls);
  double now = 0;
  uint64_t call = 0;
  CHECK(times.front().start_us == 0);
  for (const KernelTime& t : times) {
    CHECK(t.start_us >= now);
    CHECK(t.end_us >= t.start_us);
    now = t.end_us;
    CHECK(!t.kernel.empty());
    CHECK((t.call == call || t.call == call + 1));
    call = t.call;
  }
  CHECK(call == calls - 1);
  CHECK(now > 0);
}

void check_kernel_times(const std::string& device) {
  CAPTURE(device);
  const Env whole("REWIND_LIMITS", "dispatch-us:1000000000");  // without dispatches in parts
  KernelRunner runner(open_backend(device));
  Backend& backend = runner.backend();
  const Binding y = runner.allocate(5000);
  run_fill(runner, y, 1);
  CHECK(backend.kernel_times().empty());

  // More calls than one submit takes, with copies between them.
  backend.time_kernels(true);
  const float value = 3;
  for (uint32_t i = 0; i < 150; ++i) {
    run_fill(runner, y, i);
    if (i % 10 == 0) backend.write({y.range.block, 0, 4}, &value);
  }
  std::vector<KernelTime> times = backend.kernel_times();
  check_order(times, 150);
  CHECK(times.size() == 150);
  CHECK(std::all_of(times.begin(), times.end(), [](auto& t) { return t.kernel == "fill"; }));
  CHECK(backend.kernel_times().empty());

  // The second take continues with the same clock and numbers.
  run_fill(runner, y, 1);
  times.push_back(backend.kernel_times().at(0));
  check_order(times, 151);

  // When measuring stops, existing measurements stay and nothing is added.
  run_fill(runner, y, 1);
  backend.time_kernels(false);
  run_fill(runner, y, 1);
  times = backend.kernel_times();
  REQUIRE(times.size() == 1);
  CHECK(times[0].call == 151);
  run_fill(runner, y, 1);
  CHECK(backend.kernel_times().empty());

  // When it starts again, numbers and clock begin anew; a call may be several modules.
  backend.time_kernels(true);
  const Binding a = runner.allocate(16 * 4096), b = runner.allocate(16 * 4096);
  const Binding c = runner.allocate(16 * 16);
  run_fill(runner, a, 0);
  run_fill(runner, b, 0);
  run_matmul(runner, a, b, c);
  run_fill(runner, c, 0);
  times = backend.kernel_times();
  check_order(times, 4);
  CHECK(times.front().kernel == "fill");
  CHECK(times[2].kernel != "fill");
  CHECK(times.back().kernel == "fill");
}

}  // namespace

TEST_CASE("kernel times: timestamps become microseconds since the first kernel" *
          doctest::test_suite("host")) {
  StepTimes clock(50, ~uint64_t{0}, false);
  CHECK(!clock.wanted());
  clock.time_kernels(true);
  CHECK(clock.wanted());
  CHECK(clock.seconds(100, 20000100) == doctest::Approx(1.0));
  const TimedStep steps[] = {
      {"write", TimedStep::kCopy}, {"a", clock.next_call()}, {"b", clock.next_call()}};
  clock.add(steps, std::vector<uint64_t>{5, 10, 1000, 1020, 1100, 1200});
  const std::vector<KernelTime> times = clock.take();
  REQUIRE(times.size() == 2);
  CHECK(times[0].kernel == "a");
  CHECK(times[0].start_us == 0);
  CHECK(times[0].end_us == doctest::Approx(1.0));
  CHECK(times[1].call == 1);
  CHECK(times[1].start_us == doctest::Approx(5.0));
  CHECK(times[1].end_us == doctest::Approx(10.0));
  CHECK(clock.take().empty());
}

TEST_CASE("kernel times: timestamps of few bits wrap around, and small steps back count as none" *
          doctest::test_suite("host")) {
  StepTimes clock(1000, 0xFFFF, false);
  clock.time_kernels(true);
  const TimedStep step{"k", 0};
  // Bits above the mask are undefined.
  for (uint64_t tick : {0xABC0FFF0u, 0x00020u, 0x17000u, 0x16FFEu, 0xE000u, 0x10004000u})
    clock.add({&step, 1}, std::vector<uint64_t>{tick, tick + 8});
  std::vector<double> starts;
  for (const KernelTime& t : clock.take()) {
    starts.push_back(t.start_us);
    CHECK(t.end_us >= t.start_us);
  }
  CHECK(starts[1] == 0x30);
  CHECK(starts[2] == 0x7010);
  CHECK(starts[3] == 0x7018);  // began before the previous one ended
  CHECK(starts[4] == 0xE010);
  CHECK(starts[5] == 0x14010);
}

TEST_CASE("kernel times: sums by label" * doctest::test_suite("host")) {
  StepTimes sums(1000, ~uint64_t{0}, true);
  CHECK(sums.wanted());
  const TimedStep steps[] = {{"a", 0}, {"b", 1}, {"a", 2}};
  sums.add(steps, std::vector<uint64_t>{0, 1, 1, 11, 20, 22});
  const std::string text = sums.profile();
  CHECK(text.find("b ") < text.find("a "));
  CHECK(text.find("2 x        1.5 us =            3 us") != std::string::npos);
  CHECK(sums.take().empty());
}

TEST_CASE("kernel times: on both backends, and beside REWIND_PROFILE") {
  check_kernel_times("cpu");
  check_kernel_times("reference");
  check_kernel_times("vulkan");
  const uint64_t messages = vulkan::validation_messages();
  {
    const Env profile("REWIND_PROFILE", "1");
    const Env hazards("REWIND_CHECK_HAZARDS", "1");
    check_kernel_times("vulkan");
  }
  CHECK(vulkan::validation_messages() == messages);
}

TEST_CASE("kernel times: nothing without timestamps") {
  const Without none("timestamps");
  KernelRunner runner(open_backend("vulkan"));
  const Binding y = runner.allocate(100);
  runner.backend().time_kernels(true);
  run_fill(runner, y, 1);
  CHECK(runner.backend().kernel_times().empty());
}
