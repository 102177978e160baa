#include "planner/forecast/program.h"

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
