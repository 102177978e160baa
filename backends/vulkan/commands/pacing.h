// How long steps take on this device: a guess at first, by what kind of device it is, then what
// submits of them took, in this process and, as a text says, in earlier ones. No Vulkan in it.
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
  // `speed`: how much faster than guess() the device is taken to be.
  explicit Pacing(double speed = 1) : typical_(1 / speed) {}

  // Seconds by operations or by bytes, whichever takes longer, on a slow device: long enough that
  // no first submit is too long.
  static double guess(double flops, double bytes);

  // Seconds that a step of this name is expected to take.
  double expect(const char* label, double guess) const { return guess * factor(label); }
  bool is_measured(const char* label) const { return known(label) != nullptr; }

  // A submit of these steps took so long. Those that were expected to take most of it are taken to
  // be what was expected wrongly.
  void learn(std::span<const TimedStep> steps, double seconds);

  // What was learned, a line for each name; and what an earlier process did. Other lines are passed
  // over.
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

// How many workgroups of a kernel with `all`, which takes about `seconds`, go to the device next:
// all that are `left`, or where it takes more than `most`, what takes half of that. A grid has rows
// of at most `row`, and only the last part may leave one unfilled, as workgroups must not run
// twice.
uint32_t groups_at_once(uint32_t all, uint32_t left, double seconds, double most, uint32_t row);

}  // namespace rw::vulkan
