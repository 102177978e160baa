// A limit on a device's memory within which evicting passes stay.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "../../core/memory/default_device.h"
#include "../../core/memory/device.h"

namespace rw {

// While it lives, the bytes that the device has from its driver (`reserved`, those of blocks) stay
// within the budget: values of this thread's evicting forward passes are dropped, and others move
// if free bytes lie scattered. An allocation throws OutOfMemory if nothing is left to drop. The end
// of the scope restores the previous budget.
class MemoryBudget {
 public:
  // `advice` is added to the text of OutOfMemory.
  explicit MemoryBudget(uint64_t bytes, const std::shared_ptr<Device>& device = default_device(),
                        std::function<std::string()> advice = {});
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

 private:
  std::shared_ptr<Device> device_;
  Device::Budget previous_;
};

}  // namespace rw
