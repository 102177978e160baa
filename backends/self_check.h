// Proves a device right before it is used. Untried drivers get things wrong, so the answers of a
// device decide, not a list of known drivers.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../core/backend/backend.h"

namespace rw {

// Runs kernels with known answers: each way to store f16 (to nearest even, ties, overflow,
// denormals, NaN; one by one and in words), sums in subgroups, long loops, bytes, norms, products,
// convolutions, attention, indices. The reference backend supplies the answers. Returns the faults,
// empty if there are none; errors of the device are faults, too, except Unsupported. f32 and 16
// bits are checked side by side, since most of the time goes to compiling: `open` is called in two
// threads.
std::vector<std::string> find_faults(const std::function<std::unique_ptr<Backend>()>& open);

// Opens a device without the given ones of its features.
using OpenWithout =
    std::function<std::unique_ptr<Backend>(const std::vector<RefusedFeature>& without)>;

// The features without which the device has no faults: one where one is enough, the least loss
// first in `info.features`, else the first ones together. DeviceError, naming the faults, where
// that does not help. With `child_seconds` the checks run in child processes, where to crash, or to
// take more than so much time of a core in one check, and more than a few times the longest of
// those before, is a fault like others: for CPU drivers, which have no watchdog. Drivers of GPUs
// are not made for a process that was forked.
//
// The verdict comes from the cache's file of that name where it is there and whole; else it is
// written there, and before it what each check says as it ends: a process that is killed has done
// its part, the next one goes on. Several may do so at once. An empty name: nothing is kept.
std::vector<RefusedFeature> refused_features(const std::string& file, const OpenWithout& open,
                                             const DeviceInfo& info, double child_seconds = 0);

}  // namespace rw
