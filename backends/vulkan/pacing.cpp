#include "rewind/backends/vulkan/pacing.h"

#include <algorithm>
#include <cmath>

namespace rw::vulkan {

namespace {

constexpr double kGuessedFlops = 2e10, kGuessedBytes = 2e10;  // in a second
constexpr double kLeastGuess = 1e-5;  // what a dispatch costs; says nothing about rates
constexpr double kLeastFactor = 1e-4, kMostFactor = 1e3;

}  // namespace

double Pacing::guess(double flops, double bytes) {
  return std::max({flops / kGuessedFlops, bytes / kGuessedBytes, kLeastGuess});
}

double Pacing::factor(const char* label) const {
  const auto it = factors_.find(label);
  return it == factors_.end() ? typical_ : it->second;
}

void Pacing::learn(std::span<const TimedStep> steps, double seconds) {
  double expected = 0, guessed = 0;
  std::unordered_map<const char*, double> shares;
  for (const TimedStep& step : steps) {
    guessed += step.guess;
    shares[step.label] += expect(step.label, step.guess);
  }
  for (const auto& [label, share] : shares) expected += share;
  if (seconds <= 0 || expected <= 0) return;
  const double ratio = seconds / expected;
  for (const auto& [label, share] : shares) {
    const double weight = is_measured(label) ? share / expected : 1;
    factors_[label] =
        std::clamp(factor(label) * std::pow(ratio, weight), kLeastFactor, kMostFactor);
  }
  // Towards slowness at once, towards speed by halves: what was not measured may be another thing.
  typical_ = std::clamp(std::max(seconds / guessed, typical_ / 2), kLeastFactor, 1.0);
}

}  // namespace rw::vulkan
