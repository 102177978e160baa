// Random graphs in random nests of segments, and under recomputation of which they know nothing:
// always the bits of the plain run, and nothing left over.
#include <cmath>
#include <thread>

#include "core/autograd/boundaries.h"
#include "optim/sgd.h"
#include "planner/auto_recompute.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/random_program.h"

namespace rw::test {

namespace {

// Runs a program, and returns the losses, then the gradients.
std::vector<std::vector<float>> run_graph(uint32_t seed, bool segments,
                                          std::vector<Tensor>& leaves) {
  manual_seed(seed);
  std::vector<std::vector<float>> results;
  {
    auto [loss, other] = Program(seed, segments, leaves).run();
    results = {loss.to_vector(), other.to_vector()};
    const bool both = seed % 3 == 1 && other.requires_grad();
    if (!both) other = {};
    loss.backward({}, both || seed % 3 == 2);
    if (both) other.backward();
    if (seed % 3 == 2) loss.backward();
  }
  for (Tensor& t : leaves) {
    results.push_back(t.grad().defined() ? t.grad().to_vector() : std::vector<float>());
    t.set_grad({});
  }
  return results;
}

// Runs one backward, one of each of two losses, or two of one, in turn.
void check_graphs(uint32_t count) {
  std::vector<Tensor> leaves = program_leaves();
  const uint64_t at_rest = default_device()->memory_report().live;
  const uint64_t replayed = Tape::current()->replayed_records();
  for (uint32_t seed = 0; seed < count; ++seed) {
    INFO("seed " << seed);
    const auto plain = run_graph(seed, false, leaves);
    REQUIRE(std::isfinite(plain[0][0]));
    const auto with_segments = run_graph(seed, true, leaves);
    REQUIRE(with_segments == plain);
    REQUIRE(default_device()->memory_report().live == at_rest);
    REQUIRE(Tape::current()->stats().records == 0);
    const HostBoundaries on_host;
    REQUIRE(run_graph(seed, true, leaves) == plain);
    REQUIRE(default_device()->memory_report().live == at_rest);
    REQUIRE(default_device()->memory_report().host_live == 0);
  }
  CHECK(default_device()->memory_report().host_peak > 0);
  CHECK(Tape::current()->replayed_records() - replayed > 5 * count);
}

struct TrainedGraph {
  std::vector<std::vector<float>> results;  // losses and, in the end, the leaves
  uint64_t peak = 0, replayed = 0;
};

// Takes steps of two programs in turn, on a device of their own, under recomputation as `options`
// or the environment say.
TrainedGraph train_graph(uint32_t seed, const std::optional<AutoRecomputeOptions>& options = {}) {
  const DeviceScope scope(Device::create(open_backend("reference")));
  const uint64_t replayed = Tape::current()->replayed_records();
  TrainedGraph trained;
  {
    std::optional<AutoRecompute> recompute;
    if (options) recompute.emplace(*options);
    const std::vector<Tensor> leaves = program_leaves();
    SGD optimizer(std::vector<Tensor>(leaves.begin(), leaves.end() - 1), {.lr = 0.05f});
    for (uint32_t step = 0; step < 6; ++step) {
      manual_seed(step);
      const Tensor loss = Program(seed + step % 3 / 2, false, leaves).run().first;
      loss.backward();
      trained.results.push_back(loss.to_vector());
      optimizer.step();
      optimizer.zero_grad();
    }
    for (const Tensor& t : leaves) trained.results.push_back(t.to_vector());
  }
  trained.peak = default_device()->memory_report().peak;
  trained.replayed = Tape::current()->replayed_records() - replayed;
  CHECK(default_device()->live() == 0);
  return trained;
}

// Trains in a thread of its own, which reads the environment anew.
TrainedGraph train_in_thread(uint32_t seed) {
  TrainedGraph trained;
  std::exception_ptr error;
  std::thread([&] {
    try {
      trained = train_graph(seed);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return trained;
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "random graphs: segments give the same bits and leave nothing" *
                                 doctest::test_suite("host")) {
  check_graphs(300);
}

TEST_CASE("random graphs: recomputation of programs that say nothing of it" *
          doctest::test_suite("host")) {
  using Mode = AutoRecomputeOptions::Mode;
  const auto seeds = static_cast<uint32_t>(rounds(6, 60));
  uint64_t replayed = 0, fitted = 0;
  for (uint32_t seed = 0; seed < 2 * seeds; seed += 2) {
    INFO("seed " << seed);
    const TrainedGraph plain = train_graph(seed);
    REQUIRE(std::isfinite(plain.results[0][0]));
    const auto check = [&](const auto& run) {
      const TrainedGraph again = run();
      REQUIRE(again.results == plain.results);
      replayed += again.replayed;
    };
    for (const Mode mode : {Mode::memory, Mode::speed})
      check([&] { return train_graph(seed, {{.mode = mode}}); });
    const Env how("REWIND_RECOMPUTE", seed % 4 ? "memory" : "speed");
    check([&] { return train_in_thread(seed); });
    const uint64_t budget = plain.peak * 9 / 10;
    const Env bytes("REWIND_MEMORY_BUDGET", std::to_string(budget).c_str());
    const Env by_budget("REWIND_RECOMPUTE", seed % 4 ? "" : "evict");
    const std::function<TrainedGraph()> bounded[] = {
        [&] { return train_graph(seed, {{.mode = Mode::budget, .budget = budget}}); },
        [&] { return train_graph(seed, {{.mode = Mode::evict, .budget = budget}}); },
        [&] { return train_in_thread(seed); }};
    for (const auto& run : bounded) try {
        check(run);
        ++fitted;
      } catch (const OutOfMemory&) {  // some programs need more
        REQUIRE(Tape::current()->is_empty());
      }
  }
  CHECK(replayed > 100 * seeds);
  CHECK(fitted > seeds);
}

TEST_CASE("random graphs: on vulkan") {
  try {
    set_default_device(open_backend("vulkan"));
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  check_graphs(24);
}

}  // namespace rw::test
