// How long steps take on this device: first a guess by the kind of device, then the measured times
// of submits, in this process and, read from a text, in earlier ones. Contains no Vulkan.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "timing.h"

namespace rw::vulkan {

class Pacing {
 public:
  // `speed` is how much faster than guess() the device is assumed to be.
  explicit Pacing(double speed = 1) : typical_(1 / speed) {}

  // Returns the seconds by operations or by bytes, whichever takes longer, on a slow device: long
  // enough that no first submit is too long.
  static double guess(double flops, double bytes);

  // Returns the seconds that a step of this name is expected to take.
  double expect(const char* label, double guess) const { return guess * factor(label); }
  bool is_measured(const char* label) const { return known(label) != nullptr; }

  // Learns that a submit of these steps took so long. The steps that were expected to take most of
  // it are assumed to be those with a wrong expectation.
  void learn(std::span<const TimedStep> steps, double seconds);

  // Writes what was learned as text, a line for each name, and reads what an earlier process
  // learned. Other lines are skipped.
  std::string text() const;
  void remember(std::string_view text);

 private:
  const double* known(const char* label) const;
  double factor(const char* label) const;

  double typical_;  // factor of steps that have not been measured
  // The factors correct guesses. Labels are few and live on.
  std::unordered_map<const char*, double> factors_;
  std::map<std::string, double, std::less<>> earlier_;
};

// Returns the number of workgroups that go to the device next, of a kernel with `all` that takes
// about `seconds`: all that are `left`, or, if these take more than `most`, as many as take half of
// it. A grid has rows of at most `row`, and only the last part may leave a row unfilled, since
// workgroups must not run twice.
uint32_t groups_at_once(uint32_t all, uint32_t left, double seconds, double most, uint32_t row);

}  // namespace rw::vulkan
