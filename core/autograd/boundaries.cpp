#include "core/autograd/boundaries.h"

#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/base/thread_state.h"

namespace rw {

namespace {

bool is_on_host(const Tensor& t) {
  return t.defined() && t.impl().storage->place() == MemoryPlace::host;
}

// The value at another place, as the same value. Queued.
Saved moved(const Tensor& value, MemoryPlace place) {
  const TensorImpl& from = value.impl();
  const OpScope op("boundary");
  const PlaceScope scope(place);
  const PurposeScope purpose(Purpose::activation);
  Tensor to = empty(from.shape, from.dtype, value.device().shared_from_this());
  value.device().copy(*from.storage, 0, *to.impl().storage, 0, value.bytes());
  to.impl().id = from.id;
  return Saved::of(to);
}

// Another layout could take other kernels to replay, a part of a storage frees nothing, and what
// was written to meanwhile is an error that the replay reports.
bool can_move(const Saved& value) {
  if (!value.tensor.defined() || is_on_host(value.tensor)) return false;
  const TensorImpl& impl = value.tensor.impl();
  return value.tensor.numel() > 0 && value.tensor.is_contiguous() && impl.offset == 0 &&
         value.tensor.bytes() == impl.storage->bytes() && impl.storage->version() == value.version;
}

// The same value as another outermost segment holds it on the host; undefined: none does. Those
// that ended before the value was made do not.
Saved known_on_host(const Segments& segments, int segment, uint64_t id, int64_t maker) {
  for (int s = segment - 1; s >= 0 && segments[s].last > maker; --s) {
    if (segments[s].parent >= 0) continue;
    const auto found = segments[s].externals.find(id);
    if (found != segments[s].externals.end() && is_on_host(found->second.value.tensor))
      return found->second.value;
  }
  return {};
}

// One past the last segment inside an outermost one.
int end_of(const Segments& segments, int segment) {
  int end = segment + 1;
  while (end < segments.size() && segments[end].parent >= 0) ++end;
  return end;
}

// Those inside hold values from outside, too: every value once.
void bring_back(Segments& segments, int segment) {
  std::unordered_map<uint64_t, Saved> back;
  for (int s = segment; s < end_of(segments, segment); ++s)
    for (auto& [id, external] : segments[s].externals) {
      if (!is_on_host(external.value.tensor)) continue;
      const auto [known, is_new] = back.try_emplace(id);
      if (is_new) known->second = on_device(external.value);
      external.value = known->second;
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

void boundaries_to_host(Segments& segments, int segment) noexcept {
  std::unordered_map<uint64_t, Saved> gone;
  try {
    for (int s = segment; s < end_of(segments, segment); ++s)
      for (auto& [id, external] : segments[s].externals) {
        if (external.record < 0 || !can_move(external.value)) continue;
        const auto [known, is_new] = gone.try_emplace(id);
        if (is_new) known->second = known_on_host(segments, segment, id, external.record);
        if (!known->second.tensor.defined())
          known->second = moved(external.value.tensor, MemoryPlace::host);
        external.value = known->second;
      }
  } catch (const Error&) {  // no host memory: the rest stays on the device
  }
}

Saved on_device(const Saved& value) {
  return is_on_host(value.tensor) ? moved(value.tensor, MemoryPlace::device) : value;
}

void boundaries_to_device(Segments& segments, int segment) {
  bring_back(segments, segment);
  int before = segment - 1;
  while (before >= 0 && (segments[before].parent >= 0 || segments[before].alive == 0)) --before;
  if (before >= 0) bring_back(segments, before);
}

}  // namespace rw
