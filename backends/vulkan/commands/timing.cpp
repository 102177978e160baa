#include "backends/vulkan/commands/timing.h"

namespace rw::vulkan {

void StepTimes::time_kernels(bool on) {
  kernels_ = on;
  if (!on) return;
  times_.clear();
  calls_ = 0;
  clock_started_ = false;
}

double StepTimes::seconds(uint64_t begin, uint64_t end) const {
  return static_cast<double>((end - begin) & mask_) * tick_us_ * 1e-6;
}

// Timestamps may wrap around after a minute, so the time is the sum of differences. A small step
// back, which Vulkan does not exclude, counts as zero.
double StepTimes::advance(uint64_t tick) {
  if (!clock_started_) {
    last_tick_ = tick;
    elapsed_ = 0;
    clock_started_ = true;
  }
  const uint64_t difference = (tick - last_tick_) & mask_;
  if (difference <= mask_ / 2) {
    elapsed_ += difference;
    last_tick_ = tick;
  }
  return static_cast<double>(elapsed_) * tick_us_;
}

void StepTimes::add(std::span<const TimedStep> steps, std::span<const uint64_t> ticks) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const uint64_t begin = ticks[2 * i], end = ticks[2 * i + 1];
    if (profile_) sums_.add(steps[i].label, seconds(begin, end) * 1e6);
    if (!kernels_ || steps[i].call == TimedStep::kCopy) continue;
    const double start_us = advance(begin);
    times_.push_back({steps[i].call, steps[i].label, start_us, advance(end)});
  }
}

}  // namespace rw::vulkan
