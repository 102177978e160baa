#include "planner/follow/memory_budget.h"

#include "core/autograd/tape.h"

namespace rw {

MemoryBudget::MemoryBudget(uint64_t bytes, const std::shared_ptr<Device>& device,
                           std::function<std::string()> advice)
    : device_(device),
      previous_(device->exchange_budget(
          {bytes, [](uint64_t wanted) { return Tape::current()->evict(wanted); },
           std::move(advice)})) {}

MemoryBudget::~MemoryBudget() {
  device_->exchange_budget(std::move(previous_));
}

}  // namespace rw
