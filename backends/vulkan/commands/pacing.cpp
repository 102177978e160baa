#include "backends/vulkan/commands/pacing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace rw::vulkan {

namespace {

constexpr double kGuessedFlops = 2e10, kGuessedBytes = 2e10;  // in a second
// The cost of a dispatch itself, which says nothing about rates.
constexpr double kLeastGuess = 1e-5;
constexpr double kLeastFactor = 1e-4, kMostFactor = 1e3;

}  // namespace

double Pacing::guess(double flops, double bytes) {
  return std::max({flops / kGuessedFlops, bytes / kGuessedBytes, kLeastGuess});
}

const double* Pacing::known(const char* label) const {
  if (const auto it = factors_.find(label); it != factors_.end()) return &it->second;
  if (earlier_.empty()) return nullptr;
  const auto it = earlier_.find(std::string_view(label));
  return it == earlier_.end() ? nullptr : &it->second;
}

double Pacing::factor(const char* label) const {
  const double* found = known(label);
  return found ? *found : typical_;
}

std::string Pacing::text() const {
  std::map<std::string, double, std::less<>> all = earlier_;
  for (const auto& [label, factor] : factors_) all[label] = factor;
  std::string text;
  for (const auto& [label, factor] : all) text += fmt::format("{} {:.4g}\n", label, factor);
  return text;
}

void Pacing::remember(std::string_view text) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const size_t blank = line.rfind(' ');
    double factor = 0;
    if (blank == line.npos || std::sscanf(line.c_str() + blank, "%lf", &factor) != 1) continue;
    if (factor >= kLeastFactor && factor <= kMostFactor) earlier_[line.substr(0, blank)] = factor;
  }
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
  // The estimate becomes slower at once and faster by halves, since unmeasured work may differ.
  typical_ = std::clamp(std::max(seconds / guessed, typical_ / 2), kLeastFactor, 1.0);
}

uint32_t groups_at_once(uint32_t all, uint32_t left, double seconds, double most, uint32_t row) {
  if (seconds <= most) return left;
  const double wanted = std::max(1.0, most / 2 / seconds * all);
  if (wanted >= left) return left;
  const auto count = static_cast<uint32_t>(wanted);
  return count > row ? count - count % row : count;
}

}  // namespace rw::vulkan
