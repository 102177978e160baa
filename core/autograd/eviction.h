// Segments that keep what vjps read until memory is wanted, and drop what is cheapest to make again
// (Kirisame et al. 2021, "Dynamic tensor rematerialization").
#pragma once

#include <unordered_set>

#include "records.h"
#include "segments.h"

namespace rw {

// The storages of a segment's kept values that nobody else's handle keeps alive: to drop all values
// of one frees its memory.
std::unordered_set<const Storage*> own_storages(const Segment& segment);

// Drops kept values of the segment worth at least `wanted` bytes, or all it can; `now` is
// Segments::now(). Returns how many storages went.
uint64_t drop_values(const Records& records, Segment& segment, uint64_t now, uint64_t wanted);

}  // namespace rw
