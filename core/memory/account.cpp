#include "core/memory/account.h"

#include <algorithm>
#include <utility>

namespace rw {

void MemoryAccount::allocated(Purpose purpose, uint64_t bytes, uint64_t size,
                              const MemoryPool& pool) {
  report_.live_by_purpose[static_cast<int>(purpose)] += bytes;
  requested_live_ += bytes;
  step_allocated_ += size;
  update_peaks(pool);
}

void MemoryAccount::freed(Purpose purpose, uint64_t bytes) {
  report_.live_by_purpose[static_cast<int>(purpose)] -= bytes;
  requested_live_ -= bytes;
}

void MemoryAccount::changed(Purpose from, Purpose to, uint64_t bytes) {
  report_.live_by_purpose[static_cast<int>(from)] -= bytes;
  report_.live_by_purpose[static_cast<int>(to)] += bytes;
}

void MemoryAccount::update_peaks(const MemoryPool& pool) {
  MemoryReport& r = report_;
  if (pool.live() > r.peak) {
    r.peak = pool.live();
    r.peak_by_purpose = r.live_by_purpose;
    r.padding_at_peak = pool.live() - requested_live_;
    r.fragmentation_at_peak = pool.reserved() - pool.live() - pool.largest_hole();
  }
  r.peak_reserved = std::max(r.peak_reserved, pool.reserved());
  high_water_ = std::max(high_water_, pool.live());
}

void MemoryAccount::update_host_peak(const MemoryPool& pool) {
  report_.host_peak = std::max(report_.host_peak, pool.host_live());
}

void MemoryAccount::end_step(const MemoryPool& pool) {
  report_.naive = step_start_ + step_allocated_;
  report_.peak_reserved = std::max(report_.peak_reserved, pool.reserved());
  step_start_ = pool.live();
  step_allocated_ = 0;
}

void MemoryAccount::reset_peak(const MemoryPool& pool) {
  report_ = MemoryReport{.live_by_purpose = report_.live_by_purpose};
  step_start_ = pool.live();
  step_allocated_ = 0;
  update_peaks(pool);
  update_host_peak(pool);
}

uint64_t MemoryAccount::take_high_water(const MemoryPool& pool) {
  return std::exchange(high_water_, pool.live());
}

MemoryReport MemoryAccount::report(const MemoryPool& pool) const {
  MemoryReport r = report_;
  r.live = pool.live();
  r.reserved = pool.reserved();
  r.host_live = pool.host_live();
  r.host_reserved = pool.host_reserved();
  r.naive = std::max(r.naive, step_start_ + step_allocated_);
  return r;
}

}  // namespace rw
