// The launches of a program on a Vulkan device, which tell whether its kernels fill the device.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "../core/backend/backend.h"

namespace rw {

// One dispatch of a kernel, or of a part of a composed one.
struct KernelLaunch {
  std::string kernel, dtypes;  // as in KernelVariant
  uint64_t workgroups = 0;
  double waves = 0;    // workgroups for each of the device's multiprocessors
  uint64_t bytes = 0;  // of all bindings; bytes that are both written and read count twice
  double flops = 0;    // of matrix products and convolutions
};

// Returns a prediction of the device, as from open_backend("dry:..."), that reports to `launched`
// what a program launches, joined as on the device; the last launch when it is destroyed. `device`
// is "vulkan...", or "dry:FILE.json" with a profile. DeviceError if it has no workgroups.
std::unique_ptr<Backend> open_counting(const std::string& device,
                                       std::function<void(const KernelLaunch&)> launched);

// Returns a table with a row for each kind of launch, those with the fewest workgroups first.
std::string launch_table(std::span<const KernelLaunch> launches);

}  // namespace rw
