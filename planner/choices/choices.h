// One number for memory: the ways to take the same update, and the quickest one that fits.
//   Choices choices(planner, planner.settings(), {.bytes = parse_bytes("8GiB")});
//   PlannedRun run({.make = make, .settings = choices.quickest().value().settings});
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ways.h"

namespace rw {

// One way to take an update.
struct Choice {
  StepSettings settings;  // of the steps
  std::string options;    // the differences from the settings asked for, in the program's words
  Forecast forecast;      // Planner::measure(); of ranks, that of the one that needs most
  double seconds = 0;     // of an update, by the device's speed

  uint64_t peak() const { return forecast.memory.peak; }  // bytes on the device
};

// Decides about all memory together: activations are kept, made again, or wait in host memory;
// states and parameters lie on the device or in host memory; weights are updated after backward or
// inside it; and the batch comes at once or in steps. All ways are measured by dry runs.
class Choices {
 public:
  // `planner` must outlive it.
  Choices(const Planner& planner, const StepSettings& asked, ChoiceOptions options)
      : ways_(planner, asked, std::move(options)) {}

  bool has_bus() const { return ways_.has_bus(); }  // the device has memory of its own
  const Choice& asked() { return measured({}); }    // as it was asked for, whether it fits or not
  // The quickest way that fits, in blocks, too; nothing if none does.
  std::optional<Choice> quickest();
  // The least bytes on the device, of ways that fit the host, or so many bytes of it.
  Choice least() { return least(options().host_bytes); }
  Choice least(uint64_t host_bytes);
  // All ways that fit the host, but those of which another one needs no more on the device and
  // takes no more time; the quickest first. It measures every way.
  std::vector<Choice> front();

  // For each approximate way that was not allowed, its name with the quickest choice that allowing
  // it adds, if that is quicker than `chosen` by a hundredth (null: if it fits, in blocks, too). It
  // plans roughly, so what is chosen then may be quicker still.
  std::vector<std::pair<std::string, Choice>> gains(const Choice* chosen) const;
  // The most tokens per sample with which this way fits, in steps of 64, or of about a 32nd of it
  // if that is more; 0 where samples have none.
  int64_t longest(const Choice& choice) const;
  // The most tokens with which a way fits, and that way with so many (StepSettings::length): of
  // those that differ from least() in how activations are kept, the one that needs least where
  // samples are long. It fits in blocks, too. Nothing where samples have no tokens, or not even 64
  // fit.
  std::optional<Choice> longest();
  // Measures any other way to take the update.
  Choice measure(const StepSettings& settings) const;

  const Planner& planner() const { return ways_.planner(); }        // of the program
  const ChoiceOptions& options() const { return ways_.options(); }  // with its defaults filled in

 private:
  static constexpr double no_bound = std::numeric_limits<double>::infinity();
  using Way = Ways::Way;

  // As the other constructor, with the plans and measurements of `known`.
  Choices(const Choices& known, ChoiceOptions options);

  const std::vector<size_t>& plans();
  std::vector<size_t> lean_activations();
  AutoRecomputeOptions planning() const;
  std::optional<Choice> longest_of(const Choice& choice) const;
  const Choice& measured(Way way);
  void measure_together(std::vector<Way> ways);
  Way least_way(uint64_t host_bytes);
  std::optional<size_t> leanest_group();
  std::pair<bool, uint64_t> needs_at_least(size_t group, uint64_t host_bytes);
  bool has_smaller_steps(size_t group, uint64_t host_bytes);
  bool fits(const Choice& choice, uint64_t bytes) const;
  void try_group(size_t group, uint64_t bytes, double most_seconds, bool is_thorough,
                 std::optional<Way>& best);
  double least_seconds(size_t group) const;
  double likely_seconds(size_t group, size_t activations) const;
  // A thorough search tries all that may fit.
  std::optional<Way> best_within(uint64_t bytes, double most_seconds = no_bound,
                                 bool is_thorough = false);
  Choice planned_again(const Choice& choice, uint64_t bytes);

  Ways ways_;
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
