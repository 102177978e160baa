// One number for memory: the ways to take the same update, and the quickest one that fits.
//   Choices choices(planner, planner.settings(), {.bytes = parse_bytes("8GiB")});
//   PlannedRun run({.make = make, .settings = choices.quickest().value().settings});
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../core/memory/process_memory.h"
#include "planner.h"
#include "step_time.h"

namespace rw {

// One way to take an update.
struct Choice {
  StepSettings settings;  // of the steps
  std::string options;    // the differences from the settings asked for, in the program's words
  Forecast forecast;      // Planner::measure(); of ranks, that of the one that needs most
  double seconds = 0;     // of an update, by the device's speed

  uint64_t peak() const { return forecast.memory.peak; }  // bytes on the device
};

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

// Decides about all memory together: activations are kept, made again, or wait in host memory;
// states and parameters lie on the device or in host memory; weights are updated after backward or
// inside it; and the batch comes at once or in steps. All ways are measured by dry runs.
class Choices {
 public:
  // `planner` must outlive it.
  Choices(const Planner& planner, const StepSettings& asked, ChoiceOptions options);

  bool has_bus() const;                           // the device has memory of its own
  const Choice& asked() { return measured({}); }  // as it was asked for, whether it fits or not
  // The quickest way that fits, in blocks, too; nothing if none does.
  std::optional<Choice> quickest();
  // The least bytes on the device, of ways that fit the host, or so many bytes of it.
  Choice least() { return least(options_.host_bytes); }
  Choice least(uint64_t host_bytes);
  // All ways that fit the host, but those of which another one needs no more on the device and
  // takes no more time; the quickest first. It measures every way.
  std::vector<Choice> front();

  // For each approximate way that was not allowed, its name with the quickest choice that allowing
  // it adds, if that is quicker than `chosen` by a hundredth (null: if it fits). It plans roughly,
  // so what is chosen then may be quicker still.
  std::vector<std::pair<std::string, Choice>> gains(const Choice* chosen) const;
  // The most tokens per sample with which this way fits, in steps of 64, or of about a 32nd of it
  // if that is more; 0 where samples have none.
  int64_t longest(const Choice& choice) const;
  // The most tokens with which a way fits, and that way with so many (StepSettings::length): of
  // those that differ from least() in how activations are kept, the one that needs least where
  // samples are long. Nothing where samples have no tokens, or not even 64 fit.
  std::optional<Choice> longest();
  // Measures any other way to take the update.
  Choice measure(const StepSettings& settings) const;

  const Planner& planner() const { return planner_; }        // of the program
  const ChoiceOptions& options() const { return options_; }  // with its defaults filled in

 private:
  static constexpr double no_bound = std::numeric_limits<double>::infinity();
  // Numbers of what lies where and when weights are updated, and of how activations are kept.
  using Way = std::pair<size_t, size_t>;

  // As the other constructor, with the plans and measurements of `known`.
  Choices(const Choices& known, ChoiceOptions options);

  bool may(const char* way) const;
  bool allows(std::string_view way) const;
  bool applies(const std::string& approximate) const;
  void add_groups();
  void add_activations();
  const std::vector<size_t>& plans();
  std::vector<size_t> lean_activations();
  AutoRecomputeOptions planning() const;
  std::optional<Choice> longest_of(const Choice& choice) const;
  StepSettings settings_of(Way way) const;
  const Choice& measured(Way way);
  void measure_together(std::vector<Way> ways);
  Way least_way(uint64_t host_bytes);
  size_t leanest_group();
  bool fits(const Choice& choice, uint64_t bytes) const;
  void try_group(size_t group, uint64_t bytes, double most_seconds, std::optional<Way>& best);
  double least_seconds(size_t group) const;
  std::optional<Way> best_within(uint64_t bytes, double most_seconds = no_bound);
  Choice planned_again(const Choice& choice, uint64_t bytes);

  const Planner& planner_;
  const StepSettings asked_;
  ChoiceOptions options_;
  std::vector<StepSettings> groups_, activations_;  // of ways, which take a part of each
  size_t plain_ = 0;                                // the activations that are all kept
  // The activations of plans, by rising cost, which come last; nothing before they are needed.
  std::optional<std::vector<size_t>> plans_;
  std::map<Way, Choice> measured_;
  // The search for plans() where it was made here, for the leanest group.
  std::shared_ptr<const Search> rough_;
  // The search that planned again, and for which settings: another bound has the same one.
  std::shared_ptr<Search> search_;
  StepSettings searched_;
};

}  // namespace rw
