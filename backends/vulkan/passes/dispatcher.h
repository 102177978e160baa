// How a call that consists of passes runs its single shader modules.
#pragma once

#include "../../../core/backend/backend.h"
#include "../device/caps.h"

namespace rw::vulkan {

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  virtual const Caps& caps() const = 0;

  // Records one shader module. call.kernel is the manifest's name, with its define combination:
  // "matmul_gpu.BM64.BN64". `threads` counts threads, as everywhere.
  virtual void dispatch(const KernelCall& call) = 0;

  // Tells whether the module exists for these dtypes and the device has what it requires.
  virtual bool available(std::string_view kernel, std::span<const Binding> bindings) const = 0;
};

}  // namespace rw::vulkan
