// Segments that keep the values that vjps read until memory is needed, and then drop those that are
// cheapest to recompute (Kirisame et al. 2021, "Dynamic tensor rematerialization").
#pragma once

#include <unordered_set>

#include "records.h"
#include "segments.h"

namespace rw {

// Returns the storages of a segment's kept values that no other handle keeps alive: dropping all
// values of such a storage frees its memory.
std::unordered_set<const Storage*> own_storages(const Segment& segment);

// Drops kept values of the segment worth at least `wanted` bytes, or as many as it can; `now` is
// Segments::now(). A value that costs more to recompute than to fetch from host memory goes there
// instead (HostBandwidth). Returns the number of storages that were freed.
uint64_t drop_values(const Records& records, Segment& segment, uint64_t now, uint64_t wanted);

}  // namespace rw
