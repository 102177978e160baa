#include "core/dry_run.h"

#include "core/rng.h"

namespace rw {

namespace {

// A device, tape, context and random generator of its own.
class Sandbox {
 public:
  Sandbox(std::shared_ptr<Device> device, const Techniques& techniques)
      : tape_(Tape::exchange_current(std::make_shared<Tape>())),
        context_(std::exchange(context(), Context{.techniques = techniques, .only = device.get()})),
        device_(std::move(device)),
        generator_(default_generator()) {}
  ~Sandbox() {
    Tape::exchange_current(tape_);
    context() = context_;
  }
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

 private:
  std::shared_ptr<Tape> tape_;
  Context context_;
  DeviceScope device_;
  GeneratorScope generator_;
};

}  // namespace

Forecast dry_run(std::unique_ptr<Backend> dry, const std::function<void()>& program,
                 const DryRunOptions& options) {
  check(dry != nullptr, "dry_run",
        "the backend must be able to predict itself; use open_backend(\"dry\")");
  check(dry->is_dry(), "dry_run",
        "the backend must be one that predicts, got '{}' ({}), which would really compute; use "
        "open_backend(\"dry\") or its dry()",
        dry->info().name, dry->info().backend);
  const auto device = Device::create(std::move(dry), options.memory_limit);
  const Sandbox sandbox(device, options.techniques);
  device->set_packs_steps(options.pack);
  device->learn(options.learnt);
  if (options.trace) device->start_trace();
  program();
  Forecast forecast{device->memory_report(), device->work(), std::nullopt, device->step_traces()};
  if (options.trace) forecast.trace = device->stop_trace();
  return forecast;
}

Forecast plan(const std::function<void()>& program, const DryRunOptions& options) {
  return dry_run(default_device()->backend().dry(), program, options);
}

}  // namespace rw
