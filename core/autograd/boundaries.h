// Boundaries between checkpoint segments in host memory: the device holds them only while they are
// made and while they are used again.
#pragma once

#include "segments.h"

namespace rw {

// While it lives, what segments hold for their replay goes to host memory that the device can copy
// to and from (MemoryPlace::host) when the outermost segment around it ends, and comes back when
// backward reaches that segment, one segment before it is needed, or when a kernel needs it
// earlier. Device memory then holds what two segments hold, however many there are; each boundary
// crosses the bus twice. The activations of a part of a Lockstep (ops/lockstep.h) go there while it
// waits, and so do values that eviction would drop where they cost more to recompute than to fetch.
// The bits are the same. A view's whole storage goes; parameters, data and what policies keep stay.
// As PyTorch's save_on_cpu around checkpoints, and DeepSpeed's "CPU checkpointing".
class [[nodiscard]] HostBoundaries {
 public:
  explicit HostBoundaries(bool on = true);  // false: they stay on the device, whatever is around
  ~HostBoundaries();
  HostBoundaries(const HostBoundaries&) = delete;
  HostBoundaries& operator=(const HostBoundaries&) = delete;

 private:
  bool outer_;
};

// Whether such a scope is open on this thread.
bool boundaries_on_host();

// Sends what an outermost segment, which has ended, holds of values of the tape to the host; what
// the host has no memory for stays.
void boundaries_to_host(Segments& segments, int segment);
// Brings back what a segment holds, and queues the same for the outermost segment before it.
void boundaries_to_device(Segments& segments, int segment);

}  // namespace rw
