// Finds the shader modules of a kernel for this device.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "../../../core/base/hash.h"
#include "../device/caps.h"
#include "../device/shader_table.h"

namespace rw::vulkan {

// One kernel for given dtypes, where bf16 counts as f16; null if there is no such module.
struct Kernel {
  const Shader* descriptors = nullptr;
  const Shader* address = nullptr;
};

// The signature of a module or a call: its name, which outlives this, and the dtypes of its
// bindings, a byte for each. A call's bf16 is what its kernel is written for (written_for).
struct Signature {
  std::string_view kernel;
  uint64_t dtypes = 0;
  bool operator==(const Signature&) const = default;
  size_t hash() const { return std::hash<std::string_view>{}(kernel) ^ dtypes * splitmix64_step; }
};
template <class T>
using BySignature = std::unordered_map<Signature, T, KeyHash>;

// Returns the workgroups of a call of this module: in one dimension, except for Grid::cube.
std::array<uint32_t, 3> workgroups(const Shader& shader, const KernelCall& call, const Caps& caps);

class Kernels {
 public:
  explicit Kernels(const Caps& caps);
  // Returns null if there is none that the device can run.
  const Kernel* find(std::string_view name, std::span<const Binding> bindings) const;
  // Finds it, or throws an error that says what is missing.
  const Kernel& get(std::string_view name, std::span<const Binding> bindings) const;
  std::vector<KernelVariant> variants() const;
  std::vector<const Shader*> modules() const;  // all that the device can run, in a fixed order

 private:
  void add(const Caps& caps, bool stand_ins);

  BySignature<Kernel> usable_;
  BySignature<uint32_t> lacking_;  // features that the device does not have
};

}  // namespace rw::vulkan
