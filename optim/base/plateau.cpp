#include "optim/base/plateau.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rw {

Plateau::Plateau(Optimizer& optimizer, const PlateauOptions& options)
    : optimizer_(optimizer),
      options_(options),
      best_((options.maximize ? -1 : 1) * std::numeric_limits<double>::infinity()) {
  check(options.factor > 0 && options.factor < 1, "plateau", "factor must be in (0, 1), got {}",
        options.factor);
  check(options.threshold >= 0 && options.min_lr >= 0 && options.eps >= 0, "plateau",
        "threshold, min_lr and eps must be >= 0, got {}, {} and {}", options.threshold,
        options.min_lr, options.eps);
}

bool Plateau::is_better(double metric) const {
  const double sign = options_.maximize ? -1 : 1;
  if (std::isinf(best_)) return sign * metric < sign * best_;  // it has no relative margin
  const double margin = options_.threshold * (options_.threshold_is_absolute ? 1 : best_);
  return sign * metric < sign * best_ - margin;
}

bool Plateau::step(double metric) {
  const bool improves = is_better(metric);
  bad_ = improves ? 0 : bad_ + 1;
  if (improves) best_ = metric;
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= options_.patience) return false;
  cooldown_ = options_.cooldown;
  bad_ = 0;
  const double before = optimizer_.base_learning_rate();
  const double after = std::max(before * options_.factor, options_.min_lr);
  if (before - after <= options_.eps) return false;
  optimizer_.set_learning_rate(static_cast<float>(after));
  return true;
}

Plateau::State Plateau::state() const {
  return {best_, bad_, cooldown_, optimizer_.base_learning_rate()};
}

void Plateau::load_state(const State& saved) {
  best_ = saved.best;
  bad_ = saved.bad;
  cooldown_ = saved.cooldown;
  optimizer_.set_learning_rate(saved.learning_rate);
}

}  // namespace rw
