#include "trainer/program/learning_rate.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "optim/schedules/learning_rate.h"
#include "trainer/program/shared_options.h"

namespace rw {

void LearningRateOptions::add_to(CLI::App& app) {
  app.add_option("--lr", lr,
                 "highest learning rate (default: the usual one for such a model and batch, which "
                 "the run prints)");
  app.add_option("--scale-lr", rule,
                 "scale --lr from --reference-batch to the samples of an update, --batch times "
                 "--accumulate: linear (for SGD), sqrt (for Adam) or none; without --lr the rate "
                 "follows the batch by itself")
      ->capture_default_str();
  must_be_positive(
      app.add_option("--reference-batch", reference,
                     "with --scale-lr: the samples per update for which --lr is meant"));
}

double LearningRateOptions::rate(int64_t batch, uint32_t accumulate,
                                 const TrainingRecipe& chosen) const {
  check(!lr || (std::isfinite(*lr) && *lr >= 0), "options", "--lr must be a number >= 0, got {}",
        lr.value_or(0));
  check(reference >= 0, "options", "--reference-batch must be positive, got {}", reference);
  const LearningRateRule scaling = parse_learning_rate_rule(rule);
  if (scaling == LearningRateRule::none) return lr.value_or(chosen.lr);
  check(
      lr && reference > 0, "options",
      "--scale-lr {} needs --reference-batch, the samples per update for which --lr is meant, and "
      "--lr itself: without it, the rate follows the batch",
      rule);
  return scale_lr(static_cast<float>(*lr), batch * accumulate, reference, scaling);
}

std::string LearningRateOptions::str(int64_t batch, uint32_t accumulate) const {
  if (!lr || parse_learning_rate_rule(rule) == LearningRateRule::none) return "";
  return fmt::format(", learning rate {:g} ({:g} for {} per update)", rate(batch, accumulate, {}),
                     *lr, reference);
}

std::string LearningRateOptions::chosen_text(double rate, const TrainingRecipe& chosen) const {
  if (chosen.reason.empty()) return "";
  return fmt::format("learning rate {:.3g}, {}; {}", rate, lr ? "as --lr says" : chosen.reason,
                     chosen.schedule_text());
}

}  // namespace rw
