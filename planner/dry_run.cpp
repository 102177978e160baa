#include "planner/dry_run.h"

#include "core/base/rng.h"
#include "core/base/thread_state.h"

namespace rw {

Forecast dry_run(std::unique_ptr<Backend> dry, const std::function<void()>& program,
                 const DryRunOptions& options) {
  check(dry != nullptr, "dry_run",
        "the backend must be able to predict itself; use open_backend(\"dry\")");
  check(dry->is_dry(), "dry_run",
        "the backend must be one that predicts, got '{}' ({}), which would really compute; use "
        "open_backend(\"dry\") or its dry()",
        dry->info().name, dry->info().backend);
  const auto device = Device::create(std::move(dry), options.memory_limit);
  Generator generator = default_generator();
  const ThreadStateScope sandbox({.context = {.overwrites = context().overwrites,
                                              .drops_segments = context().drops_segments,
                                              .only = device.get()},
                                  .generator = &generator,
                                  .device = device});
  device->set_packs_steps(options.pack);
  device->learn(options.learnt);
  if (options.trace) device->start_trace();
  program();
  Forecast forecast{device->memory_report(), device->work(), std::nullopt, device->step_traces()};
  if (options.trace) forecast.trace = device->stop_trace();
  return forecast;
}

std::unique_ptr<Backend> endless_dry(const Backend& device) {
  DeviceInfo limits = device.info();
  limits.memory_bytes = UINT64_MAX;
  limits.max_block_bytes = uint64_t{1} << 62;
  return device.dry(limits);
}

Forecast plan(const std::function<void()>& program, const DryRunOptions& options) {
  return dry_run(default_device()->backend().dry(), program, options);
}

}  // namespace rw
