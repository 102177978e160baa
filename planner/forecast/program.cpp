#include "planner/forecast/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace rw {

StepSettings StepSettings::plain() const {
  StepSettings settings = *this;
  settings.checkpoint = "none";
  settings.host_boundaries = false;
  settings.recompute = nullptr;
  settings.budget = 0;
  return settings;
}

StepSettings StepSettings::shortened() const {
  StepSettings settings = *this;
  settings.accumulate = std::min(settings.accumulate, 3u);
  return settings;
}

SettingsScope::SettingsScope(const StepSettings& settings)
    : blocks_(settings.checkpoint == "block"), boundaries_(settings.host_boundaries) {
  if (settings.budget) budget_.emplace(settings.budget);
  if (settings.recompute) recompute_.emplace(*settings.recompute);
}

std::string TrainingProgram::changes(const StepSettings& from, const StepSettings& to,
                                     uint64_t budget) const {
  std::vector<std::string> changes;
  const auto add = [&](const char* way, const auto&... values) {
    changes.push_back(fmt::format(fmt::runtime(words.at(way)), values...));
  };
  if (to.offload != from.offload) add("offload", to.offload);
  if (to.fused_update != from.fused_update) add("fused", to.fused_update);
  if (to.states_in_8_bits) add("8-bit-states");
  if (to.accumulate != from.accumulate)
    add("batch", to.batch, to.accumulate * static_cast<uint32_t>(to.ranks));
  if (to.recompute && to.recompute != from.recompute) add("budget", budget);
  if (to.checkpoint == "block" && from.checkpoint != "block") add("block");
  if (to.checkpoint == "none" && !to.recompute && from.checkpoint != "none") {
    std::string none = words.at("block");
    none.replace(none.rfind("block"), 5, "none");
    changes.push_back(none);
  }
  if (to.host_boundaries && !from.host_boundaries) add("boundaries");
  if (to.mlp_rows != from.mlp_rows) add("mlp-rows", to.mlp_rows);
  return fmt::format("{}", fmt::join(changes, " "));
}

BatchShapes batches_of(int64_t samples) {
  return [samples](int64_t batch) {
    std::vector<BatchShape> shapes;
    if (samples >= batch) shapes.push_back({.rows = batch});
    if (samples % batch) shapes.push_back({.rows = samples % batch});
    return shapes;
  };
}

namespace {

class EqualSteps : public TrainingSteps {
 public:
  explicit EqualSteps(std::function<void()> step) : step_(std::move(step)) {}
  void dry_step(const BatchShape&) override { step_(); }

 private:
  std::function<void()> step_;
};

}  // namespace

MakeSteps training_steps(std::function<std::function<void()>(const StepSettings&)> make) {
  return [make = std::move(make)](const StepSettings& settings) {
    return std::make_unique<EqualSteps>(make(settings));
  };
}

}  // namespace rw
