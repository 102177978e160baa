// A synthetic trace of training steps: layers with checkpoint segments, a replay in backward, and
// an update.
#pragma once

#include "../../core/memory/memory_trace.h"

namespace rw::test {

// Returns a trace of a few thousand events by default; `timed` adds host and kernel times.
MemoryTrace training_trace(int layers = 24, int steps = 3, bool timed = true);

}  // namespace rw::test
