// Composes a call on this device from shader modules. The choice depends only on the call's
// parameters, constants and dtypes and on the device, so a call's workspace is known without
// running it.
#pragma once

#include <functional>
#include <memory>

#include "../call_cache.h"
#include "device/caps.h"
#include "passes/dispatcher.h"
#include "passes/passes.h"

namespace rw::vulkan {

// Only one thread uses it at a time. It caches passes, since a training step repeats its calls.
class Composer {
 public:
  explicit Composer(const Caps& caps) : caps_(caps) {}

  // Returns the passes of a kernel that has several ways to run, or that takes several modules;
  // null for kernels of one module.
  std::shared_ptr<const Passes> passes(const KernelCall& call) const;
  // Runs the passes (those that the call brings as its preparation), or the one module.
  void run(const KernelCall& call, Dispatcher& dispatcher) const;

 private:
  Caps caps_;
  mutable CallCache<const Passes> kept_;
};

// Predicts a device with these limits: its blocks, and the workspaces of its calls. `limits` are
// to_info(caps), or have other limits of memory. `listen`, if set, receives the calls that would
// run.
std::unique_ptr<Backend> make_dry_backend(const Caps& caps, const DeviceInfo& limits,
                                          std::function<void(const KernelCall&)> listen = {});

}  // namespace rw::vulkan
