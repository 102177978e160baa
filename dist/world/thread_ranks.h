// Ranks that are threads of one process.
#pragma once

#include <functional>

#include "communicator.h"

namespace rw {

// Runs the body on `size` threads. Each is a rank with a tape of its own and a generator that
// continues the caller's; everything else starts in the caller's state. A DeviceScope inside gives
// each rank its device. If ranks throw, the others are unwound in their next call, and the first
// exception is thrown here. ValueError for less than one rank.
void run_ranks(int size, const std::function<void(Communicator&)>& body);

}  // namespace rw
