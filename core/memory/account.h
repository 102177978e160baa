// The account of a device's memory: the bytes by purpose, and the peaks.
#pragma once

#include <cstdint>

#include "../arena/pool.h"
#include "memory_report.h"

namespace rw {

// Counts what a device allocates and frees, by purpose.
class MemoryAccount {
 public:
  // Counts an allocation in the device's memory: `bytes` as asked for, `size` as taken, and the
  // pool after it.
  void allocated(Purpose purpose, uint64_t bytes, uint64_t size, const MemoryPool& pool);
  // Counts that a range of so many bytes (as asked for) is gone, or serves another purpose.
  void freed(Purpose purpose, uint64_t bytes);
  void changed(Purpose from, Purpose to, uint64_t bytes);
  void allocated_on_host(const MemoryPool& pool) { update_host_peak(pool); }

  void end_step(const MemoryPool& pool);             // a training step is over
  void reset_peak(const MemoryPool& pool);           // peaks start again, from what is live
  uint64_t take_high_water(const MemoryPool& pool);  // most bytes live at once since the last call
  // Without the values that the device adds: limit, steps, driver.
  MemoryReport report(const MemoryPool& pool) const;

 private:
  void update_peaks(const MemoryPool& pool);
  void update_host_peak(const MemoryPool& pool);

  MemoryReport report_;
  uint64_t requested_live_ = 0, step_allocated_ = 0, step_start_ = 0, high_water_ = 0;
};

}  // namespace rw
