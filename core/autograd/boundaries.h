// Boundaries between checkpoint segments in host memory: the device holds them only while they are
// made and while they are used again.
#pragma once

#include "segments.h"

namespace rw {

// While it lives, the values that segments hold for their replay go to host memory that the device
// can copy to and from (MemoryPlace::host) when the outermost segment around them ends, and come
// back when a kernel needs them. Device memory then holds the values of one segment, however many
// there are; each boundary crosses the bus twice. The activations of a part of a Lockstep
// (ops/lockstep.h) go there while it waits. This is for segments that are set by hand: plans of
// recomputation and eviction decide by themselves what goes to the host. The bits are the same. A
// view's whole storage goes; parameters, data and values that policies keep stay. This is like
// PyTorch's save_on_cpu around checkpoints, and DeepSpeed's "CPU checkpointing".
class [[nodiscard]] HostBoundaries {
 public:
  // False: they stay on the device, whatever scope is around.
  explicit HostBoundaries(bool on = true);
  ~HostBoundaries();
  HostBoundaries(const HostBoundaries&) = delete;
  HostBoundaries& operator=(const HostBoundaries&) = delete;

 private:
  bool outer_;
};

// Tells whether such a scope is open on this thread.
bool boundaries_on_host();

// Sends the tape's values that an outermost segment, which has ended, holds to the host; values for
// which the host has no memory stay.
void boundaries_to_host(const Segment& segment);

}  // namespace rw
