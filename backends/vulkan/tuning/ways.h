// The ways to run calls of one class that differ from each other.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "../../../core/backend/backend.h"
#include "../device/caps.h"

namespace rw::vulkan {

// Depends only on the calls and the device's limits. Choices that make the same passes for all
// calls are one way, so a choice that a device cannot run is not a way of its own.
class Ways {
 public:
  Ways(std::span<const KernelCall> calls, const Caps& caps);

  // Returns the choice of the cost model.
  const Choice& standard() const { return standard_; }
  // Returns those of the choices that make new passes, which neither the cost model nor earlier
  // choices made.
  std::vector<Choice> fresh(std::span<const Choice> choices);

 private:
  std::string passes_of(const Choice& choice) const;

  std::vector<KernelCall> calls_;
  Caps caps_;
  Choice standard_;
  std::set<std::string> made_;
};

// Returns all ways, the cost model's first; never empty.
std::vector<Choice> admitted(std::span<const KernelCall> calls, const Caps& caps);

}  // namespace rw::vulkan
