#include "optim/schedules/schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "shaders/params.h"

namespace rw {

namespace {

// The numbers by which the kernel knows the schedules.
using Kind = Schedule::Kind;
static_assert(static_cast<int>(Kind::constant) == SCHEDULE_CONSTANT &&
              static_cast<int>(Kind::cosine) == SCHEDULE_COSINE &&
              static_cast<int>(Kind::linear) == SCHEDULE_LINEAR &&
              static_cast<int>(Kind::step) == SCHEDULE_STEP &&
              static_cast<int>(Kind::polynomial) == SCHEDULE_POLYNOMIAL &&
              static_cast<int>(Kind::multistep) == SCHEDULE_MULTISTEP &&
              static_cast<int>(Kind::restarts) == SCHEDULE_RESTARTS &&
              static_cast<int>(Kind::noam) == SCHEDULE_NOAM &&
              static_cast<int>(Kind::one_cycle) == SCHEDULE_ONE_CYCLE);
static_assert(Schedule::most_milestones == MOST_MILESTONES);

void check_floor(float floor) {
  check(floor >= 0 && floor <= 1, "schedule", "floor must be in [0, 1], got {}", floor);
}

void check_gamma(float gamma) {
  check(gamma > 0 && std::isfinite(gamma), "schedule", "gamma must be positive, got {}", gamma);
}

Schedule decaying(Schedule::Kind kind, uint32_t total, uint32_t warmup, float floor, float gamma) {
  check(total > warmup, "schedule", "total must be more than warmup, got {} and {}", total, warmup);
  check_floor(floor);
  return {.kind = kind, .warmup = warmup, .total = total, .floor = floor, .gamma = gamma};
}

double cosine_between(double high, double low, double progress) {
  return low + (high - low) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
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
  check_gamma(gamma);
  return {.kind = Kind::step, .warmup = warmup, .period = period, .gamma = gamma};
}

Schedule Schedule::exponential(float gamma, uint32_t warmup) {
  return step(1, gamma, warmup);
}

Schedule Schedule::multistep(const std::vector<uint32_t>& milestones, float gamma,
                             uint32_t warmup) {
  check(
      milestones.size() <= most_milestones && std::is_sorted(milestones.begin(), milestones.end()),
      "schedule", "needs at most {} milestones in rising order, got {}", most_milestones,
      fmt::join(milestones, ", "));
  check_gamma(gamma);
  Schedule schedule{.kind = Kind::multistep, .warmup = warmup, .gamma = gamma};
  std::copy(milestones.begin(), milestones.end(), schedule.milestones.begin());
  return schedule;
}

Schedule Schedule::restarts(uint32_t period, uint32_t growth, uint32_t warmup, float floor) {
  check(period > 0 && growth > 0, "schedule", "period and growth must be positive, got {} and {}",
        period, growth);
  check_floor(floor);
  return {.kind = Kind::restarts,
          .warmup = warmup,
          .period = period,
          .floor = floor,
          .gamma = static_cast<float>(growth)};
}

Schedule Schedule::noam(uint32_t model_size, uint32_t warmup) {
  check(model_size > 0 && warmup > 0, "schedule",
        "model_size and warmup must be positive, got {} and {}", model_size, warmup);
  const double highest = 1 / std::sqrt(static_cast<double>(model_size) * warmup);
  return {.kind = Kind::noam, .warmup = warmup, .gamma = static_cast<float>(highest)};
}

Schedule Schedule::one_cycle(uint32_t total, float pct_start, float div_factor,
                             float final_div_factor) {
  const double peak = double{pct_start} * total - 1;
  check(peak > 0 && pct_start < 1, "schedule",
        "pct_start must be below 1, and pct_start * total above 1, got {} and {}", pct_start,
        total);
  check(div_factor >= 1 && final_div_factor >= 1, "schedule",
        "the divisors must be >= 1, got {} and {}", div_factor, final_div_factor);
  return {.kind = Kind::one_cycle,
          .total = total,
          .floor = 1 / div_factor / final_div_factor,
          .gamma = 1 / div_factor,
          .peak = static_cast<float>(peak)};
}

Schedule Schedule::polynomial(uint32_t total, float power, uint32_t warmup, float floor) {
  check(power > 0 && std::isfinite(power), "schedule", "power must be positive, got {}", power);
  return decaying(Kind::polynomial, total, warmup, floor, power);
}

double Schedule::factor(uint64_t done) const {
  if (kind == Kind::noam) {
    const double n = static_cast<double>(done) + 1;
    return gamma * std::min(std::sqrt(warmup / n), n / warmup);
  }
  if (kind == Kind::one_cycle) {
    const auto t = static_cast<double>(done);
    if (t <= peak) return cosine_between(gamma, 1, t / peak);
    return cosine_between(1, floor, std::min(1.0, (t - peak) / (total - 1.0 - peak)));
  }
  if (done < warmup) return (static_cast<double>(done) + 1) / warmup;
  const double since = static_cast<double>(done - warmup);
  const double progress = total > warmup ? std::min(1.0, since / (total - warmup)) : 1.0;
  const double low = floor;
  switch (kind) {
    case Kind::cosine:
      return cosine_between(1, low, progress);
    case Kind::linear:
      return 1 - (1 - low) * progress;
    case Kind::step:
      return std::pow(double{gamma}, std::floor(since / period));
    case Kind::polynomial:
      return low + (1 - low) * std::pow(1 - progress, double{gamma});
    case Kind::multistep: {
      const auto reached = std::count_if(milestones.begin(), milestones.end(),
                                         [=](uint32_t milestone) { return milestone <= done; });
      return std::pow(double{gamma}, static_cast<double>(reached));
    }
    case Kind::restarts: {
      double place = gamma == 1 ? std::fmod(since, period) : since, length = period;
      for (; place >= length; length *= gamma) place -= length;
      return cosine_between(1, low, place / length);
    }
    default:
      return 1;
  }
}

}  // namespace rw
