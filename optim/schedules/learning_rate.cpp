#include "optim/schedules/learning_rate.h"

#include <cmath>

#include "core/base/error.h"

namespace rw {

LearningRateRule parse_learning_rate_rule(std::string_view text) {
  if (text == "none") return LearningRateRule::none;
  if (text == "linear") return LearningRateRule::linear;
  check(text == "sqrt", "scale_lr", "the rule must be none, linear or sqrt, got '{}'", text);
  return LearningRateRule::square_root;
}

float scale_lr(float base, int64_t batch, int64_t reference, LearningRateRule rule) {
  check(base >= 0 && std::isfinite(base), "scale_lr", "the learning rate must be >= 0, got {}",
        base);
  check(batch > 0 && reference > 0, "scale_lr", "both batches must be positive, got {} and {}",
        batch, reference);
  if (rule == LearningRateRule::none) return base;
  const double ratio = static_cast<double>(batch) / static_cast<double>(reference);
  return static_cast<float>(base * (rule == LearningRateRule::linear ? ratio : std::sqrt(ratio)));
}

}  // namespace rw
