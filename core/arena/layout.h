// Offsets for allocations whose lifetimes are all known beforehand, such as those of one training
// step: dynamic storage allocation, solved offline. It works on integers only and knows no device.
//
// The problem is NP-hard. The solver follows the best of several deterministic packings until it
// meets the lower bound or has used up its work, which is counted in steps instead of seconds, so
// the same lifetimes get the same layout on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lifetime.h"

namespace rw {

// The places of lifetimes, in holes or in new regions.
struct Layout {
  // The place of one lifetime.
  struct Place {
    uint32_t space = 0;   // i < holes: hole i, holes + i: new region i
    uint64_t offset = 0;  // bytes from the beginning of that space
    bool operator==(const Place&) const = default;
  };
  std::vector<Place> places;      // one per lifetime
  std::vector<uint64_t> regions;  // bytes of each new region

  uint64_t height() const;  // bytes of all new regions
};

// Returns the most bytes that are alive at one time: no layout needs less.
uint64_t lower_bound(std::span<const Lifetime> lifetimes);

// Places every lifetime so that no two of them share bytes at one time and new regions stay small.
// `holes` are free ranges, in bytes, that cost nothing to use. Lifetimes that do not fit there go
// to new regions of at most `max_region` bytes. ValueError for empty sizes or lifetimes.
Layout lay_out(std::span<const Lifetime> lifetimes, std::span<const uint64_t> holes = {},
               uint64_t max_region = UINT64_MAX);

}  // namespace rw
