// The use of device memory, and the savings of each technique. Device counts as it allocates.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "../base/context.h"

namespace rw {

// All figures are in bytes.
struct MemoryReport {
  std::array<uint64_t, purpose_count> live_by_purpose{};  // as asked for
  std::array<uint64_t, purpose_count> peak_by_purpose{};  // at the moment of the peak
  uint64_t live = 0;                                      // arena ranges, padding included
  uint64_t peak = 0;                                      // highest `live`
  uint64_t reserved = 0;                                  // blocks held from the driver
  uint64_t peak_reserved = 0;                             // highest `reserved`
  uint64_t padding_at_peak = 0;                           // rounding of sizes to the arena's unit
  uint64_t fragmentation_at_peak = 0;                     // free bytes outside the largest hole
  uint64_t limit = 0;                                     // 0: none
  uint64_t moved = 0;                                     // copied inside the device to make room

  // Host memory that kernels can reach (PlaceScope), which the figures above do not include: in
  // ranges, at its highest, and in blocks.
  uint64_t host_live = 0;
  uint64_t host_peak = 0;
  uint64_t host_reserved = 0;

  // The sum of all allocations of the last complete step, added to what was live when it began: the
  // memory of the step if nothing were ever freed.
  uint64_t naive = 0;
  // The steps whose allocations all lay where the offline plan put them, and the allocations that
  // did not.
  uint64_t followed_steps = 0;
  uint64_t plan_misses = 0;
  // The bytes that the driver holds beyond the blocks: pipelines, staging memory, its own needs. 0
  // if the driver does not say.
  uint64_t driver_overhead = 0;

  std::string str() const;   // a table for people
  std::string json() const;  // one flat object, whose keys are the fields' names
};

std::string format_bytes(uint64_t bytes);       // "1.50 GiB"
std::string exact_bytes(uint64_t bytes);        // "1.50 GiB (1610612736 bytes)"
uint64_t parse_bytes(const std::string& text);  // "8GiB", "512M", "1000"; throws ValueError

}  // namespace rw
