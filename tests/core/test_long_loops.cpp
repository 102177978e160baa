// Loops that run for long: whatever the shapes of their steps, and however they recompute, nothing
// grows.
#include <malloc.h>

#include "core/memory/process_memory.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "optim/adam.h"
#include "planner/auto_recompute.h"
#include "tests/backends/faulty_driver.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;
using Mode = AutoRecomputeOptions::Mode;

namespace {

constexpr int64_t loop_width = 32;

struct DropoutNet : Sequential {
  DropoutNet() {
    for (int i = 0; i < 6; ++i) {
      emplace<Linear>(loop_width, loop_width);
      append([](Tensor x) { return dropout(gelu(std::move(x)), 0.1f); });
    }
  }
};

// The memory that is held between two steps; `allocations` are those of the driver that were not
// freed.
struct Held {
  uint64_t live = 0, reserved = 0, layouts = 0, records = 0, host = 0, heap = 0, allocations = 0;
  int64_t descriptor_pools = 0;
  uint64_t pipelines = 0;
};

Held held_now() {
  Device& device = *default_device();
  device.synchronize();
  malloc_trim(0);
  return {.live = device.live(),
          .reserved = device.memory_report().reserved,
          .layouts = device.step_traces().size(),
          .records = Tape::current()->stats().records + Tape::current()->stats().segments,
          .host = host_memory().current,
          .heap = mallinfo2().uordblks + mallinfo2().hblkhd,
          .allocations = FaultyDriver::faults().allocated.size() - FaultyDriver::faults().frees,
          .descriptor_pools = FaultyDriver::faults().descriptor_pools,
          .pipelines = device.backend().stats().pipelines};
}

// Uploads behind queued kernels, until the ring in which they wait has its largest size.
void fill_staging() {
  const std::vector<float> values(int64_t{2} << 20);  // 8 MiB
  Tensor x = zeros({int64_t{2} << 20});
  for (int i = 0; i < 6; ++i) {
    const Tensor y = x * 2.0f;
    x.copy_from(values);
  }
  x = {};
  default_device()->synchronize();
  default_device()->trim();
  default_device()->reset_peak();
}

// Steps of changing sizes: plain, evicting and planned ones in turn.
class Loop {
 public:
  Loop() : seeded_((manual_seed(3), true)), optimizer_(net_.parameters()) {}

  // Runs each size several times, under the same recomputation. The budget is three quarters of the
  // most that activations need.
  void round(Mode mode, uint64_t budget) {
    std::optional<AutoRecompute> recompute;
    if (budget) recompute.emplace(AutoRecomputeOptions{.mode = mode, .budget = budget});
    for (int i = 0; i < steps_per_round; ++i) step(40 + i * 5 % 8 * 24);
  }
  static constexpr int steps_per_round = 24;

 private:
  void step(int64_t rows) {
    const auto seed = static_cast<int>(rows);
    const Tensor x =
        tensor(some_values(static_cast<int>(rows * loop_width), seed), {rows, loop_width});
    optimizer_.backward(mean(square(net_(x))));
    optimizer_.step();
    optimizer_.zero_grad();
  }

  bool seeded_;
  DropoutNet net_;
  Adam optimizer_;
};

}  // namespace

TEST_CASE("long loops: changing shapes, eviction and plans on vulkan, and nothing grows") {
  const FaultyDriver driver({});
  const Without pools("push-descriptors");
  std::unique_ptr<Backend> backend;
  try {
    backend = open_backend("vulkan");
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  const DeviceScope scope(Device::create(std::move(backend)));
  const uint64_t evictions = Tape::current()->evictions();
  const uint64_t replayed = Tape::current()->replayed_records();
  fill_staging();
  Loop loop;
  loop.round(Mode::evict, 0);
  const MemoryReport plain = default_device()->memory_report();
  const uint64_t budget = plain.live + (plain.peak - plain.live) * 3 / 4;
  const auto rounds_of_all = [&](int count) {
    for (int i = 0; i < count; ++i) {
      loop.round(Mode::evict, 0);
      loop.round(Mode::evict, budget);
      loop.round(Mode::budget, budget);
    }
  };
  const int rounds_each = rounds(12, 28);  // 864 steps, or 2016; in the first half, drivers compile
  rounds_of_all(rounds_each / 2);
  Held warm, last = held_now();
  // On a busy machine, kernels may start to run in parts, which drivers compile anew.
  for (int tries = 0; tries < 4 && last.pipelines != warm.pipelines; ++tries) {
    warm = last;
    rounds_of_all(rounds_each / 2);
    last = held_now();
  }
  CHECK(last.pipelines == warm.pipelines);
  CHECK(Tape::current()->evictions() > evictions);
  CHECK(Tape::current()->replayed_records() > replayed);
  CHECK(last.live == warm.live);
  CHECK(last.reserved <= warm.reserved);
  CHECK(last.allocations <= warm.allocations);
  CHECK(last.layouts <= warm.layouts);
  CHECK(last.records == 0);
  CHECK(warm.descriptor_pools > 0);
  CHECK(last.descriptor_pools <= warm.descriptor_pools);
  const auto grown = [&](uint64_t Held::*bytes) {
    return static_cast<int64_t>(last.*bytes) - static_cast<int64_t>(warm.*bytes);
  };
  const int64_t steps = int64_t{rounds_each / 2} * 3 * Loop::steps_per_round;
  MESSAGE("in " << steps << " steps the heap grew by " << grown(&Held::heap)
                << " bytes and the process by " << grown(&Held::host));
#ifndef __SANITIZE_ADDRESS__  // it keeps freed memory for a while
  // GPUs' drivers keep part of what they record in the heap.
  if (default_device()->info().is_cpu) CHECK(grown(&Held::heap) < 32 * steps + (int64_t{64} << 10));
  CHECK(grown(&Held::host) < (int64_t{8} << 20));
#endif
}
