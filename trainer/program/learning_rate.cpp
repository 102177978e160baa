#include "trainer/program/learning_rate.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "optim/schedules/learning_rate.h"
#include "trainer/program/shared_options.h"

namespace rw {

void LearningRateOptions::add_to(CLI::App& app, const char* about_lr) {
  app.add_option("--lr", lr, about_lr)->capture_default_str();
  app.add_option("--scale-lr", rule,
                 "scale --lr from --reference-batch to the samples of an update, --batch times "
                 "--accumulate: linear (for SGD), sqrt (for Adam) or none")
      ->capture_default_str();
  must_be_positive(
      app.add_option("--reference-batch", reference,
                     "with --scale-lr: the samples per update for which --lr is meant"));
}

double LearningRateOptions::rate(int64_t batch, uint32_t accumulate) const {
  check(std::isfinite(lr) && lr >= 0, "options", "--lr must be a number >= 0, got {}", lr);
  check(reference >= 0, "options", "--reference-batch must be positive, got {}", reference);
  const LearningRateRule scaling = parse_learning_rate_rule(rule);
  if (scaling == LearningRateRule::none) return lr;
  check(reference > 0, "options",
        "--scale-lr {} needs --reference-batch, the samples per update for which --lr {} is meant",
        rule, lr);
  return scale_lr(static_cast<float>(lr), batch * accumulate, reference, scaling);
}

std::string LearningRateOptions::str(int64_t batch, uint32_t accumulate) const {
  if (parse_learning_rate_rule(rule) == LearningRateRule::none) return "";
  return fmt::format(", learning rate {:g} ({:g} for {} per update)", rate(batch, accumulate), lr,
                     reference);
}

}  // namespace rw
