// The ways to take the same update, as settings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../forecast/planner.h"
#include "../forecast/step_time.h"

namespace rw {

// The settings without a budget, the eviction that enforces it while a program runs, and the
// evaluation's batch, which the run chooses anew.
StepSettings unbounded(StepSettings settings);

// The options of Choices.
struct ChoiceOptions {
  uint64_t bytes = 0;       // of the device's blocks; 0: as many as it has
  uint64_t host_bytes = 0;  // for what lies in host memory; 0: spare_host_bytes()
  // The ways, by the keys of TrainingProgram::words, that stay as they were asked for.
  std::vector<std::string> fixed = {};
  // The approximate ways that may be taken: names of approximate_ways().
  std::vector<std::string> allowed = {};
  std::optional<DeviceSpeed> speed = {};               // nothing: assumed_speed()
  unsigned threads = 1;                                // that run the program dry at a time
  std::function<void(double share)> on_progress = {};  // as AutoRecomputeOptions::on_progress
};

// The ways that change an update. Others give the same bits, or those of another order of sums.
// last-norm: gradients are clipped by the norm of the update before. 8-bit-activations: gradients
// are made of activations that were kept in 8 bits. 8-bit-states: the optimizer has its moments in
// 8 bits. batch-norm: BatchNorm has the statistics of other numbers of samples.
const std::vector<std::string>& approximate_ways();

// Every pair of a group (what lies where, when weights are updated, in how many steps) and of a
// manner to keep activations. The settings that were asked for are the first of both.
class Ways {
 public:
  using Way = std::pair<size_t, size_t>;  // numbers of a group and of activations

  // Fills in the defaults of `options`. `planner` must outlive it.
  Ways(const Planner& planner, const StepSettings& asked, ChoiceOptions options);

  const Planner& planner() const { return planner_; }        // of the program
  const StepSettings& asked() const { return asked_; }       // without a bound
  const ChoiceOptions& options() const { return options_; }  // with its defaults filled in
  bool has_bus() const;                                      // the device has memory of its own
  bool may(const char* change) const;                  // a key of TrainingProgram::words may change
  bool allows(std::string_view approximate) const;     // an approximate way, by the options
  bool applies(const std::string& approximate) const;  // to this program

  const std::vector<StepSettings>& groups() const { return groups_; }  // the one asked for first
  // Plans come last.
  const std::vector<StepSettings>& activations() const { return activations_; }
  size_t plain() const { return plain_; }  // the activations that are all kept
  StepSettings settings(Way way) const;    // of the steps

  void add_plan(const Plan& plan);  // to the activations
  // Takes the activations of others, with their plans.
  void take_activations(const Ways& others) { activations_ = others.activations_; }

 private:
  void add_groups();
  void add_activations();

  const Planner& planner_;
  const StepSettings asked_;
  ChoiceOptions options_;
  std::vector<StepSettings> groups_, activations_;
  size_t plain_ = 0;
};

}  // namespace rw
