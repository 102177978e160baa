// Finds the shader modules of a kernel for this device.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "rewind/backends/vulkan/by_text.h"
#include "rewind/backends/vulkan/caps.h"
#include "rewind/backends/vulkan/shader_table.h"

namespace rw::vulkan {

// One kernel for given dtypes, where bf16 is f16; null where there is no such module.
struct Kernel {
  const Shader* descriptors = nullptr;
  const Shader* address = nullptr;
};

// The workgroups of a call of this module: in one dimension, but for Grid::cube.
std::array<uint32_t, 3> workgroups(const Shader& shader, const KernelCall& call, const Caps& caps);

class Kernels {
 public:
  explicit Kernels(const Caps& caps);
  // Null when there is none that the device can run.
  const Kernel* find(std::string_view name, std::span<const Binding> bindings) const;
  // The same, but throws saying what is missing.
  const Kernel& get(std::string_view name, std::span<const Binding> bindings) const;
  std::vector<KernelVariant> variants() const;
  std::vector<const Shader*> modules() const;  // all that the device can run, in a fixed order

 private:
  void add(const Caps& caps, bool stand_ins);

  ByText<Kernel> usable_;
  ByText<uint32_t> lacking_;  // features that the device does not have
};

}  // namespace rw::vulkan
