// The expected times of submits, and kernels in parts that no watchdog takes for hung.
#include <doctest/doctest.h>

#include <array>

#include "backends/open.h"
#include "backends/vulkan/commands/pacing.h"
#include "ops/operators.h"
#include "ops/ops.h"
#include "tests/fixtures/env.h"

using namespace rw;
using test::Env;
using vulkan::Pacing;
using vulkan::TimedStep;

namespace {

TimedStep timed_step(const char* label, double guess) {
  return {label, 0, guess};
}

// Runs kernels with every kind of grid: flat, folded, cubes, and one workgroup for each row.
std::vector<std::vector<float>> paced_results() {
  std::vector<float> values(3 * 40 * 50);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  const Tensor x = tensor(values, {3, 40, 50}).set_requires_grad();
  const Tensor w = tensor(std::span(values).first(50 * 36), {50, 36}).set_requires_grad();
  const Tensor image = tensor(std::span(values).first(2 * 12 * 10 * 8), {2, 12, 10, 8});
  const Tensor filter = tensor(std::span(values).first(16 * 9 * 8), {16, 3, 3, 8});
  const Tensor channels = tensor(std::span(values).first(8 * 640), {2, 2, 2, 640});  // a flat cube
  const Tensor y = softmax(matmul(gelu(x), w), 2);
  sum(y * y).backward();
  const Tensor norm = layer_norm(x.detach());
  const Tensor heads = reshape(slice(norm, 2, 0, 48), {1, 3, 40, 48});
  const Tensor attended = attention(heads, heads, heads);
  return {y.to_vector(),
          x.grad().to_vector(),
          w.grad().to_vector(),
          norm.to_vector(),
          attended.to_vector(),
          sum(x, {0}).to_vector(),
          batch_norm(channels, ones({640}), ones({640})).y.to_vector(),
          conv2d(image, filter, {.padding = 1}).to_vector()};
}

struct PacedRun {
  std::vector<std::vector<float>> results;
  uint64_t dispatches;
};

PacedRun run_paced(const char* most_us) {
  const Env bound("REWIND_LIMITS", std::string("dispatch-us:") + most_us);
  const DeviceScope scope(Device::create(open_backend("vulkan")));
  auto all = paced_results();
  return {std::move(all), default_device()->backend().stats().dispatches};
}

}  // namespace

TEST_CASE("pacing: a kernel's rate is learned from submits" * doctest::test_suite("host")) {
  Pacing pacing;
  const double flops = Pacing::guess(2e9, 1e6), bytes = Pacing::guess(1e6, 2e9);
  CHECK(flops == bytes);  // the larger of the two counts
  CHECK(Pacing::guess(2e9, 2e9) == flops);
  const char *gemm = "gemm", *copy = "copy";
  CHECK(pacing.expect(gemm, flops) == flops);
  CHECK(!pacing.is_measured(gemm));

  const TimedStep alone[] = {timed_step(gemm, 0.1)};
  pacing.learn(alone, 0.001);  // a hundred times as fast
  CHECK(pacing.is_measured(gemm));
  CHECK(pacing.expect(gemm, 0.1) == doctest::Approx(0.001));
  // Other measurements count only by half.
  CHECK(pacing.expect(copy, 0.1) == doctest::Approx(0.05));

  // In mixed submits whose copies are slower than guessed, each finds its own rate.
  for (int i = 0; i < 60; ++i) {
    const double n = i % 2 ? 1 : 3;
    const TimedStep mixed[] = {timed_step(gemm, 0.1 * n), timed_step(copy, 0.1),
                               timed_step(copy, 0.1)};
    pacing.learn(mixed, 0.001 * n + 2 * 0.2);
  }
  CHECK(pacing.expect(copy, 0.1) == doctest::Approx(0.2).epsilon(0.05));
  CHECK(pacing.expect(gemm, 0.1) < 0.005);

  // Neither no work nor impossible times teach anything.
  const double before = pacing.expect(copy, 1);
  pacing.learn({}, 1);
  pacing.learn(alone, 0);
  CHECK(pacing.expect(copy, 1) == before);
  pacing.learn(alone, 1e30);
  CHECK(pacing.expect(gemm, 1) <= 1000);
}

TEST_CASE("pacing: another process goes on with what was learned" * doctest::test_suite("host")) {
  const char *gemm = "gemm_tiled.TILE128", *copy = "copy";
  Pacing before;
  const TimedStep alone[] = {timed_step(gemm, 0.1)};
  before.learn(alone, 0.001);
  Pacing now(20);
  CHECK(now.expect(copy, 0.1) == doctest::Approx(0.005));  // on a faster kind of device
  now.remember(before.text());
  CHECK(now.is_measured(gemm));
  CHECK(now.expect(gemm, 0.1) == doctest::Approx(0.001));
  CHECK(!now.is_measured(copy));
  const TimedStep slower[] = {timed_step(gemm, 0.1)};
  now.learn(slower, 0.01);
  CHECK(now.expect(gemm, 0.1) == doctest::Approx(0.01));
  now.remember("copy\ncopy much\ncopy 1e30\ncopy -1\ncopy nan\n");
  CHECK(!now.is_measured(copy));
  now.remember("copy 0.5\n");
  Pacing last;
  last.remember(now.text());
  CHECK(last.expect(gemm, 0.1) == doctest::Approx(0.01));
  CHECK(last.expect(copy, 1) == doctest::Approx(0.5));
}

TEST_CASE("pacing: a part has whole rows of workgroups" * doctest::test_suite("host")) {
  using vulkan::groups_at_once;
  CHECK(groups_at_once(100, 100, 0.5, 1, 65535) == 100);
  CHECK(groups_at_once(100, 100, 0, 0, 65535) == 100);  // without a limit, in one part
  CHECK(groups_at_once(100, 100, 1, 0.5, 65535) == 25);
  CHECK(groups_at_once(100, 20, 1, 0.5, 65535) == 20);
  CHECK(groups_at_once(100, 100, 1, 1e-9, 65535) == 1);
  CHECK(groups_at_once(1000000, 1000000, 1, 0.5, 65535) == 3 * 65535);
  CHECK(groups_at_once(1000000, 1000000 - 9 * 65535, 1, 0.6, 65535) == 4 * 65535);
  CHECK(groups_at_once(1000000, 100000, 1, 0.5, 65535) == 100000);  // the last one
}

TEST_CASE("pacing: kernels in parts give the same bits") {
  const PacedRun whole = run_paced("1000000000"), parts = run_paced("1");
  for (size_t i = 0; i < whole.results.size(); ++i) {
    CAPTURE(i);
    size_t wrong = 0;
    for (size_t k = 0; k < whole.results[i].size(); ++k)
      wrong += parts.results[i][k] != whole.results[i][k];
    CHECK(wrong == 0);
  }
  CHECK(parts.dispatches > whole.dispatches);
}
