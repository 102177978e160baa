#include "benchmarks/memory/workload.h"

#include <chrono>

#include "core/memory/default_device.h"

namespace rw::memory {

void Workload::run(const StepSettings& settings, TapeStats* tape, double* seconds) const {
  using Clock = std::chrono::steady_clock;
  const SettingsScope scope(settings);
  const std::unique_ptr<TrainingSteps> steps = make(settings);
  steps->dry_step({});
  default_device()->synchronize();
  const auto start = Clock::now();
  const std::shared_ptr<Tape> own = Tape::current();
  if (tape) own->before_next_backward([&](const Tensor&) { *tape = own->stats(); });
  steps->dry_step({});
  default_device()->synchronize();
  if (seconds) *seconds = std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace rw::memory
