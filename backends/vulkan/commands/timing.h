// The times of the recorder's steps, from timestamps of the device. Contains no Vulkan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../../core/backend/backend.h"
#include "../../kernel_sums.h"

namespace rw::vulkan {

// One step of the recorder. `label` outlives it.
struct TimedStep {
  static constexpr uint64_t kCopy = ~uint64_t{0};

  const char* label;
  // The number from Backend::run, counted from time_kernels(true); kCopy: not a kernel.
  uint64_t call;
  double guess = 0;  // the expected seconds (pacing.h)
};

class StepTimes {
 public:
  // `tick_ns` is the nanoseconds of one tick, 0 if the device has no timestamps; `mask` the bits of
  // a timestamp that count; `profile` sums up the times of each label.
  StepTimes(double tick_ns, uint64_t mask, bool profile)
      : tick_us_(tick_ns * 1e-3), mask_(mask), profile_(profile) {}

  // Starts anew, or stops; earlier measurements can still be taken.
  void time_kernels(bool on);
  uint64_t next_call() { return calls_++; }

  // Tells whether steps need timestamps of their own.
  bool wanted() const { return tick_us_ > 0 && (kernels_ || profile_); }
  // Returns the seconds between two timestamps.
  double seconds(uint64_t begin, uint64_t end) const;
  // Adds steps in order, with two timestamps of each.
  void add(std::span<const TimedStep> steps, std::span<const uint64_t> ticks);

  std::vector<KernelTime> take() { return std::exchange(times_, {}); }
  // Returns the sums by label, as text; empty without `profile`.
  std::string profile() const { return sums_.text(); }

 private:
  double advance(uint64_t tick);  // the clock's new time

  double tick_us_;
  uint64_t mask_;
  bool profile_, kernels_ = false;

  uint64_t calls_ = 0;
  std::vector<KernelTime> times_;
  bool clock_started_ = false;
  uint64_t last_tick_ = 0, elapsed_ = 0;  // ticks
  KernelSums sums_;
};

}  // namespace rw::vulkan
