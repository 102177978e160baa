#include "core/autograd/boundaries.h"

#include <utility>

#include "core/base/thread_state.h"
#include "core/memory/device.h"

namespace rw {

namespace {

// Visits the storages of the tape's values that an outermost segment holds. Segments inside it hold
// no others from outside. Parameters are left out, since they stay on the device.
template <class F>
void for_each_held(Segments& segments, int segment, const F& f) {
  for (const auto& [id, external] : segments[segment].externals) {
    const Tensor& value = external.value.tensor;
    if (external.record < 0 || !value.defined()) continue;
    Storage& storage = *value.impl().storage;
    if (storage.purpose() == Purpose::activation) f(storage);
  }
}

}  // namespace

HostBoundaries::HostBoundaries(bool on)
    : outer_(std::exchange(thread_state().boundaries_on_host, on)) {}

HostBoundaries::~HostBoundaries() {
  thread_state().boundaries_on_host = outer_;
}

bool boundaries_on_host() {
  return thread_state().boundaries_on_host;
}

void boundaries_to_host(Segments& segments, int segment) {
  for_each_held(segments, segment, [](Storage& s) { s.device().to_host(s); });
}

void boundaries_to_device(Segments& segments, int segment) {
  const auto bring_back = [](Storage& s) { s.device().bring_back(s); };
  for_each_held(segments, segment, bring_back);
  int before = segment - 1;
  while (before >= 0 && (segments[before].parent >= 0 || segments[before].alive == 0)) --before;
  if (before >= 0) for_each_held(segments, before, bring_back);
}

}  // namespace rw
