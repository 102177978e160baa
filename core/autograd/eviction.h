// Segments that keep what vjps read until memory is wanted, and drop what is cheapest to make again
// (Kirisame et al. 2021, "Dynamic tensor rematerialization").
#pragma once

#include "records.h"
#include "segments.h"

namespace rw {

// Drops kept values of the segment worth at least `wanted` bytes, or all it can; `now` is
// Segments::now(). Returns how many storages went.
uint64_t drop_values(const Records& records, Segment& segment, uint64_t now, uint64_t wanted);

}  // namespace rw
