// Boundaries between checkpoint segments in host memory: the device holds them only while they are
// made and while they are used again.
#pragma once

#include "segments.h"

namespace rw {

// While it lives, what segments hold for their replay goes to host memory that the device's copies
// reach (MemoryPlace::host) when the outermost segment around it ends, and comes back when backward
// reaches that segment, one segment before it is needed, or when a kernel needs it earlier. In
// device memory is then what two segments hold, however many there are; each boundary crosses the
// bus twice. So do the activations of a part of a Lockstep (ops/lockstep.h) while it waits. The
// bits are the same. A view's whole storage goes; parameters, data and what policies keep stay. As
// PyTorch's save_on_cpu around checkpoints; "CPU checkpointing" of DeepSpeed.
class [[nodiscard]] HostBoundaries {
 public:
  explicit HostBoundaries(bool on = true);  // false: they stay on the device, whatever is around
  ~HostBoundaries();
  HostBoundaries(const HostBoundaries&) = delete;
  HostBoundaries& operator=(const HostBoundaries&) = delete;

 private:
  bool outer_;
};

// Whether one is open on this thread.
bool boundaries_on_host();

// Sends what an outermost segment, which has ended, holds of values of the tape to the host; what
// the host has no memory for stays.
void boundaries_to_host(Segments& segments, int segment);
// Brings back what it holds, and queues the same for the outermost segment before it.
void boundaries_to_device(Segments& segments, int segment);

}  // namespace rw
