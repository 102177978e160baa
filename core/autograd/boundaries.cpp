#include "core/autograd/boundaries.h"

#include <utility>

#include "core/base/thread_state.h"
#include "core/memory/device.h"

namespace rw {

HostBoundaries::HostBoundaries(bool on)
    : outer_(std::exchange(thread_state().boundaries_on_host, on)) {}

HostBoundaries::~HostBoundaries() {
  thread_state().boundaries_on_host = outer_;
}

bool boundaries_on_host() {
  return thread_state().boundaries_on_host;
}

// Segments inside it hold no others from outside. Parameters stay on the device.
void boundaries_to_host(const Segment& segment) {
  for (const auto& [key, external] : segment.externals) {
    const Tensor& value = external.value.tensor;
    if (external.record < 0 || !value.defined()) continue;
    Storage& storage = *value.impl().storage;
    if (storage.purpose() == Purpose::activation) storage.device().to_host(storage);
  }
}

}  // namespace rw
