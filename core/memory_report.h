// Where device memory went, and what each technique saved. Counted by Device as it allocates.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace rw {

enum class Purpose : uint8_t { parameter, gradient, optimizer, activation, workspace, data };
inline constexpr int purpose_count = 6;
const char* name(Purpose p);

// All figures in bytes.
struct MemoryReport {
  std::array<uint64_t, purpose_count> live_by_purpose{};  // as asked for
  std::array<uint64_t, purpose_count> peak_by_purpose{};  // at the moment of the peak
  uint64_t live = 0;          // arena ranges, padding included
  uint64_t peak = 0;          // highest `live`
  uint64_t reserved = 0;      // blocks held from the driver
  uint64_t peak_reserved = 0;
  uint64_t padding_at_peak = 0;        // rounding of sizes to the arena's unit
  uint64_t fragmentation_at_peak = 0;  // free bytes outside the largest hole
  uint64_t limit = 0;                  // 0: none

  // Sum of all allocations of the last complete step on top of what was live when it began: the
  // memory of the step if nothing were ever freed.
  uint64_t naive = 0;
  // What the peak would have been without one technique, all else equal.
  uint64_t peak_without_inplace = 0;
  uint64_t peak_without_f16 = 0;         // f16 storages counted as f32
  uint64_t peak_without_checkpoint = 0;  // values dropped by segments counted as kept
  uint64_t peak_without_accumulation = 0;  // activations and workspace of the whole batch at once

  std::string str() const;   // a table for people
  std::string json() const;  // one flat object, keys as the fields
};

std::string format_bytes(uint64_t bytes);            // "1.50 GiB"
uint64_t parse_bytes(const std::string& text);       // "8GiB", "512M", "1000"; throws ValueError

}  // namespace rw
