// Matrix products and convolutions: kernels composed of several shader modules. A call is planned
// from its parameters, dtypes and the device alone, so its workspace is known without running it.
#pragma once

#include "rewind/backends/vulkan/dispatcher.h"

namespace rw::vulkan {

class MatrixPlanner {
 public:
  explicit MatrixPlanner(const Caps& caps) : caps_(caps) {}

  // matmul, conv2d, conv2d_dgrad, conv2d_wgrad.
  bool handles(std::string_view kernel) const;
  // Exactly the scratch bytes that run(call) uses.
  uint64_t workspace_bytes(const KernelCall& call) const;
  void run(const KernelCall& call, Dispatcher& dispatcher) const;

 private:
  Caps caps_;
};

}  // namespace rw::vulkan
