// How long steps take on this device: a guess at first, then what submits of them took. No Vulkan
// in it.
#pragma once

#include <span>
#include <unordered_map>

#include "rewind/backends/vulkan/timing.h"

namespace rw::vulkan {

class Pacing {
 public:
  // Seconds by operations or by bytes, whichever takes longer, on a slow device: long enough that
  // no first submit is too long.
  static double guess(double flops, double bytes);

  // Seconds that a step of this name is expected to take.
  double expect(const char* label, double guess) const { return guess * factor(label); }
  bool is_measured(const char* label) const { return factors_.contains(label); }

  // A submit of these steps took so long. Those that were expected to take most of it are taken to
  // be what was expected wrongly.
  void learn(std::span<const TimedStep> steps, double seconds);

 private:
  double factor(const char* label) const;

  double typical_ = 1;                               // factor of steps that have not been measured
  std::unordered_map<const char*, double> factors_;  // of a guess; labels are few and live on
};

}  // namespace rw::vulkan
