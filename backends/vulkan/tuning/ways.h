// The ways to run calls of one class, that do differ from each other.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "../../../core/backend/backend.h"
#include "../device/caps.h"

namespace rw::vulkan {

// Pure: of the calls, the device's limits and nothing else. Choices that make the same passes for
// all of the calls are one way, so what a device cannot do is no way of its own.
class Ways {
 public:
  Ways(std::span<const KernelCall> calls, const Caps& caps);

  // What the cost model does.
  const Choice& standard() const { return standard_; }
  // Those of the choices that make passes which were not made before, by the cost model or by
  // choices that were given here earlier.
  std::vector<Choice> fresh(std::span<const Choice> choices);

 private:
  std::string passes_of(const Choice& choice) const;

  std::vector<KernelCall> calls_;
  Caps caps_;
  Choice standard_;
  std::set<std::string> made_;
};

// All of them, the cost model's first: never empty.
std::vector<Choice> admitted(std::span<const KernelCall> calls, const Caps& caps);

}  // namespace rw::vulkan
