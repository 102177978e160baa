#include "rewind/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "rewind/core/base/error.h"
#include "shaders/params.h"

namespace rw {

namespace {

// The kernel's numbers.
using Kind = Schedule::Kind;
static_assert(static_cast<int>(Kind::constant) == SCHEDULE_CONSTANT &&
              static_cast<int>(Kind::cosine) == SCHEDULE_COSINE &&
              static_cast<int>(Kind::linear) == SCHEDULE_LINEAR &&
              static_cast<int>(Kind::step) == SCHEDULE_STEP &&
              static_cast<int>(Kind::polynomial) == SCHEDULE_POLYNOMIAL);

Schedule decaying(Schedule::Kind kind, uint32_t total, uint32_t warmup, float floor, float gamma) {
  check(total > warmup, "schedule", "total must be more than warmup, got {} and {}", total, warmup);
  check(floor >= 0 && floor <= 1, "schedule", "floor must be in [0, 1], got {}", floor);
  return {.kind = kind, .warmup = warmup, .total = total, .floor = floor, .gamma = gamma};
}

}  // namespace

Schedule Schedule::constant(uint32_t warmup) {
  return {.warmup = warmup};
}

Schedule Schedule::cosine(uint32_t total, uint32_t warmup, float floor) {
  return decaying(Kind::cosine, total, warmup, floor, 1);
}

Schedule Schedule::linear(uint32_t total, uint32_t warmup, float floor) {
  return decaying(Kind::linear, total, warmup, floor, 1);
}

Schedule Schedule::step(uint32_t period, float gamma, uint32_t warmup) {
  check(period > 0, "schedule", "period must be positive, got {}", period);
  check(gamma > 0 && std::isfinite(gamma), "schedule", "gamma must be positive, got {}", gamma);
  return {.kind = Kind::step, .warmup = warmup, .period = period, .gamma = gamma};
}

Schedule Schedule::polynomial(uint32_t total, float power, uint32_t warmup, float floor) {
  check(power > 0 && std::isfinite(power), "schedule", "power must be positive, got {}", power);
  return decaying(Kind::polynomial, total, warmup, floor, power);
}

double Schedule::factor(uint64_t done) const {
  if (done < warmup) return (static_cast<double>(done) + 1) / warmup;
  const double since = static_cast<double>(done - warmup);
  const double progress = total > warmup ? std::min(1.0, since / (total - warmup)) : 1.0;
  const double low = floor;
  switch (kind) {
    case Kind::cosine:
      return low + (1 - low) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case Kind::linear:
      return 1 - (1 - low) * progress;
    case Kind::step:
      return std::pow(double{gamma}, std::floor(since / period));
    case Kind::polynomial:
      return low + (1 - low) * std::pow(1 - progress, double{gamma});
    default:
      return 1;
  }
}

}  // namespace rw
