#include "benchmarks/memory/workload.h"

#include <chrono>
#include <optional>

namespace rw::memory {

StepProgram Workload::program() const {
  return [run = run](const Recompute& recompute, RecordedGraph* record) {
    run({.recompute = recompute, .record = record});
  };
}

void take_steps(const Run& run, const std::function<Tensor()>& forward,
                const std::function<void(const Tensor& loss)>& finish) {
  using Clock = std::chrono::steady_clock;
  const auto device = default_device();
  for (int step = 0; step < run.steps; ++step) {
    device->synchronize();
    const auto start = Clock::now();
    Tensor loss;
    {
      std::optional<RecomputeScope> scope;
      if (!run.segments_every) scope.emplace(run.recompute, step == 0 ? run.record : nullptr);
      loss = forward();
    }
    const bool last = step + 1 == run.steps;
    if (last && run.tape) *run.tape = Tape::current()->stats();
    finish(loss);
    loss = {};
    device->end_step();
    device->synchronize();
    if (last && run.seconds)
      *run.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
}

}  // namespace rw::memory
