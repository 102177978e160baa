// One number for the memory of a loop of a user's own: bits and bytes, from the first step on.
#include <thread>

#include "nn/activations.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "ops/operators.h"
#include "optim/adam.h"
#include "planner/dry_run.h"
#include "planner/environment.h"
#include "planner/memory.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

struct LoopResult {
  std::vector<std::vector<float>> weights;
  MemoryReport memory;
  std::string failure;
};

// Four steps of six layers, with no word about memory, on a thread of its own.
LoopResult own_loop(const std::string& device, int64_t rows, int64_t columns,
                    const std::string& bytes = "", bool is_offloaded = false) {
  LoopResult result;
  std::thread([&] {
    const auto on = set_default_device(open_backend(device));
    std::optional<Memory> memory;
    if (!bytes.empty()) memory.emplace(bytes);
    manual_seed(3);
    try {
      Sequential net;
      for (int i = 0; i < 6; ++i) {
        const int64_t inner = columns + (is_offloaded ? 32 * i : 0);  // of many sizes
        net.emplace<Linear>(columns, inner);
        net.emplace<GELU>();
        net.emplace<Linear>(inner, columns);
      }
      const auto parameters = net.parameters();
      AdamW optimizer(is_offloaded
                          ? offload_parameters(parameters, {.parameter_bytes = uint64_t{1} << 18})
                          : one_group(parameters));
      optimizer.set_max_norm(1);
      for (int step = 0; step < 4; ++step) {
        const Tensor x = full({rows, columns}, 0.1f + 0.1f * static_cast<float>(step));
        optimizer.backward(mean(square(net(x))));
        optimizer.step();
        optimizer.zero_grad();
      }
      for (const Tensor& p : net.parameters()) result.weights.push_back(p.to_vector());
    } catch (const OutOfMemory& error) {
      result.failure = error.what();
    }
    result.memory = on->memory_report();
  }).join();
  return result;
}

void check_within(const LoopResult& bounded, const LoopResult& plain, uint64_t bytes) {
  CHECK(bounded.failure == "");
  CHECK(bounded.weights == plain.weights);
  CHECK(bounded.memory.peak_reserved <= bytes);
}

}  // namespace

TEST_CASE("memory: a loop of one's own stays within one number, with the bits of one without") {
  const LoopResult plain = own_loop("cpu", 2048, 160);
  for (const uint64_t percent : {80, 60, 45}) {
    CAPTURE(percent);
    const uint64_t bytes = plain.memory.peak * percent / 100;
    check_within(own_loop("cpu", 2048, 160, std::to_string(bytes)), plain, bytes);
    const Env by_environment("REWIND_MEMORY", std::to_string(bytes).c_str());
    check_within(own_loop("cpu", 2048, 160), plain, bytes);
  }
  const LoopResult refused = own_loop("cpu", 2048, 160, "2MiB");
  CAPTURE(refused.failure);
  CHECK(contains(refused.failure, "the memory budget is 2.00 MiB (2097152 bytes)"));
  CHECK(contains(refused.failure, "would be live"));
}

// Parameters that come to the device for an update may move gradients there, which kernels know by
// their places.
TEST_CASE("memory: offloaded parameters update within a bound that makes values move") {
  const LoopResult plain = own_loop("cpu", 64, 160, "", true);
  uint64_t moved = 0;
  for (const uint64_t percent : {130, 125, 120, 116, 112, 110, 108, 106, 104, 103, 102, 101, 100}) {
    CAPTURE(percent);
    const uint64_t bytes = plain.memory.peak * percent / 100;
    const LoopResult bounded = own_loop("cpu", 64, 160, std::to_string(bytes), true);
    check_within(bounded, plain, bytes);
    moved += bounded.memory.moved;
  }
  CHECK(moved > 0);
}

TEST_CASE("memory: where states and parameters are too large, optimizers keep them on the host") {
  const Without shared("unified-memory");
  if (!has_vulkan()) return;
  constexpr int64_t columns = 512;
  constexpr uint64_t parameters = 12 * columns * columns * sizeof(float);  // as large as gradients
  const LoopResult plain = own_loop("vulkan", 16, columns);
  CHECK(plain.memory.host_peak == 0);
  CHECK(plain.memory.peak > 4 * parameters);
  const auto within = [&](uint64_t bytes) {
    const LoopResult bounded = own_loop("vulkan", 16, columns, std::to_string(bytes));
    check_within(bounded, plain, bytes);
    return bounded.memory.host_peak;
  };
  CHECK(within(6 * parameters) == 0);
  const uint64_t states = within(plain.memory.peak / 4 * 3), all = within(parameters * 5 / 2);
  CHECK(states >= 2 * parameters);
  CHECK(states < 3 * parameters);
  CHECK(all >= 3 * parameters);
}

TEST_CASE("memory: the number holds while it lives, in its thread, and not in dry runs" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  CHECK(memory_of_thread() == 0);
  {
    const Memory memory("3MiB");
    CHECK(memory_of_thread() == 3 << 20);
    CHECK(default_device()->budget() == 3 << 20);
    dry_run(open_backend("dry:cpu"), [] { CHECK(memory_of_thread() == 0); });
    std::thread([] { CHECK(memory_of_thread() == 0); }).join();
    CHECK_THROWS_AS(Memory(1 << 20), AutogradError);
    CHECK(memory_of_thread() == 3 << 20);
  }
  CHECK(memory_of_thread() == 0);
  CHECK(default_device()->budget() == 0);
  CHECK_THROWS_AS(Memory("much"), ValueError);
  const Env bytes("REWIND_MEMORY", "5MiB");
  CHECK(memory_of_thread() == 5 << 20);
  const Env budget("REWIND_MEMORY_BUDGET", "4MiB");
  CHECK(memory_of_thread() == 0);
}
