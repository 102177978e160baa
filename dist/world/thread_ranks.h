// Ranks that are threads of one process.
#pragma once

#include <functional>

#include "communicator.h"

namespace rw {

// Runs the body on `size` threads, each a rank with a tape of its own and a generator that goes on
// where the caller's is; in everything else they begin in the caller's state. A DeviceScope inside
// gives each its device. Where ranks throw, the others are unwound in their next call, and the
// first exception is thrown here. ValueError for less than one.
void run_ranks(int size, const std::function<void(Communicator&)>& body);

}  // namespace rw
