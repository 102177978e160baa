// The account of a device's memory: who holds how much, and the peaks.
#pragma once

#include <cstdint>

#include "memory_report.h"

namespace rw {

// Counts what a device allocates and frees, by purpose.
class MemoryAccount {
 public:
  // What the pool holds at the moment, in bytes: `live` in ranges, `reserved` in blocks, and its
  // `largest_hole`.
  struct Pool {
    uint64_t live = 0, reserved = 0, largest_hole = 0;
    uint64_t host_live = 0, host_reserved = 0;  // of host memory
  };

  // Of the device's memory: `bytes` as asked for, `size` as taken, and the pool after that.
  void allocated(Purpose purpose, uint64_t bytes, uint64_t size, const Pool& pool);
  // A range of so many bytes (as asked for) is gone, or serves another purpose.
  void freed(Purpose purpose, uint64_t bytes);
  void changed(Purpose from, Purpose to, uint64_t bytes);
  void allocated_on_host(const Pool& pool) { update_host_peak(pool); }

  void end_step(const Pool& pool);             // a training step is over
  void reset_peak(const Pool& pool);           // peaks start again, from what is live
  uint64_t take_high_water(const Pool& pool);  // most bytes live at once since the last call
  MemoryReport report(
      const Pool& pool) const;  // without what the device adds: limit, steps, driver

 private:
  void update_peaks(const Pool& pool);
  void update_host_peak(const Pool& pool);

  MemoryReport report_;
  uint64_t requested_live_ = 0, step_allocated_ = 0, step_start_ = 0, high_water_ = 0;
};

}  // namespace rw
