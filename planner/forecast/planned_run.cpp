#include "planner/forecast/planned_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/memory/process_memory.h"
#include "planner/forecast/remedies.h"

namespace rw {

std::vector<std::string> problems_of_segments(const Planner& planner,
                                              const StepSettings& settings) {
  std::vector<std::string> problems;
  if (settings.checkpoint == "none" || settings.recompute || !planner.trains()) return problems;
  StepSettings plain = settings;
  plain.checkpoint = "none";
  const uint64_t with = planner.peak(settings), without = planner.peak(plain);
  if (with >= without)
    problems.push_back(fmt::format("the peak of the run is {} with all segments and {} without any",
                                   format_bytes(with), format_bytes(without)));
  for (const SegmentReport& report : planner.segment_reports(settings))
    if (!report.problem.empty())
      problems.push_back(fmt::format("segment {}: {}", report.segment, report.problem));
  return problems;
}

StepSettings with_recompute_or_remedies(const Planner& planner,
                                        const AutoRecomputeOptions& recompute) {
  try {
    return planner.with_recompute(planner.settings(), recompute);
  } catch (const OutOfMemory& error) {
    StepSettings wanted = planner.settings();
    wanted.budget = recompute.budget;
    throw OutOfMemory(fmt::format("{}\n{}", error.what(), remedies_text(planner, wanted, 0)));
  }
}

PlannedRun::PlannedRun(TrainingProgram program,
                       const std::optional<AutoRecomputeOptions>& recompute)
    : planner_(std::move(program)), settings_(planner_.settings()) {
  Device& device = *default_device();
  device.trim();  // of what an earlier run left, as predicted
  if (recompute && planner_.trains()) settings_ = with_recompute_or_remedies(planner_, *recompute);
  if (const int64_t most = planner_.program().most_evaluated)
    settings_.evaluation_batch = planner_.evaluation_batch(settings_, most, device.memory_limit());
  segment_problems_ = problems_of_segments(planner_, settings_);
  guard([&] { device.learn(planner_.steps(settings_)); });
  // A plan stays within the budget by itself; a step that differs from the plan is held to it.
  scope_.emplace(settings_);
}

void PlannedRun::guard(const std::function<void()>& body) {
  try {
    body();
  } catch (const OutOfMemory& error) {
    const uint64_t limit = default_device()->memory_limit();
    throw OutOfMemory(
        fmt::format("{}\n{}", error.what(), remedies_text(planner_, settings_, limit)));
  }
}

RunAccount PlannedRun::account() {
  RunAccount account{.memory = default_device()->memory_report(),
                     .steps_peak = steps_.peak,
                     .predicted_peak = planner_.peak(settings_),
                     .budget = settings_.budget,
                     .difference = scope_->difference(),
                     .savings = attribute_savings(planner_, settings_),
                     .host_peak = host_memory().peak,
                     .segment_problems = segment_problems_};
  account.memory.naive = steps_.naive;
  return account;
}

std::string RunAccount::str() const {
  std::string text =
      memory.str() +
      (predicted_peak == memory.peak
           ? fmt::format("A dry run predicts this peak to the byte ({}).", predicted_peak)
           : fmt::format("A dry run predicts {} bytes, the peak has {}.", predicted_peak,
                         memory.peak));
  if (!ranks.empty()) {
    const auto by_peak = [](const RankPeak& a, const RankPeak& b) { return a.peak < b.peak; };
    const auto [least, most] = std::ranges::minmax_element(ranks, by_peak);
    const auto exact = std::ranges::count_if(
        ranks, [](const RankPeak& rank) { return rank.peak == rank.predicted; });
    text +=
        fmt::format("\nOf {} ranks, {} to the byte: rank {} needs least, {}, and rank {} most, {}.",
                    ranks.size(), exact, least - ranks.begin(), format_bytes(least->peak),
                    most - ranks.begin(), format_bytes(most->peak));
  }
  if (budget)
    text += fmt::format("\nThe budget of {} was kept: blocks of {}, {} of them in use at the peak.",
                        format_bytes(budget), format_bytes(memory.peak_reserved),
                        format_bytes(memory.peak));
  if (!difference.empty())
    text += fmt::format("\nNot all steps followed the plan of recomputation: {}.", difference);
  return text + fmt::format("\nHost memory of this process: at most {}\n\n{}",
                            format_bytes(host_peak), savings_table(savings));
}

}  // namespace rw
