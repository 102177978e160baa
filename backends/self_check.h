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

// Returns the features without which the device has no faults: a single one if one is enough, the
// least loss first in `info.features`, else the first ones together. Throws DeviceError, naming the
// faults, if that does not help. With `child_seconds`, the checks run in child processes, and a
// crash is a fault like others, as is a check that takes more than so much time of a core and more
// than a few times the longest check before it. This is for CPU drivers, which have no watchdog.
// Drivers of GPUs are not made for a process that was forked.
//
// The verdict comes from the cache's file of that name if it exists and is whole. Otherwise the
// result of each check is written there as it ends, and at last the verdict: if a process is
// killed, the next one continues its work. Several processes may do so at once. With an empty name,
// nothing is kept.
std::vector<RefusedFeature> refused_features(const std::string& file, const OpenWithout& open,
                                             const DeviceInfo& info, double child_seconds = 0);

}  // namespace rw
