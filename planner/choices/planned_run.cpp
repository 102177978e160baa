#include "planner/choices/planned_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/memory/process_memory.h"
#include "planner/choices/remedies.h"
#include "planner/timeline/timeline.h"

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

namespace {

StepSettings planned_settings(const Planner& planner, const StepSettings& settings,
                              const AutoRecomputeOptions& options) {
  using Mode = AutoRecomputeOptions::Mode;
  StepSettings result = settings;
  result.budget = options.budget;
  const auto follow = [&](const Candidate& choice) {
    result.recompute = std::make_shared<const Plan>(choice.plan);
    return result;
  };
  if (options.mode == Mode::evict) {
    result.recompute = std::make_shared<const Plan>(Plan{.evicts = true});
    return result;
  }
  Search search = planner.search(settings, options);
  const Candidate choice = search.choose(options.budget);
  check<OutOfMemory>(!options.budget || choice.peak() <= options.budget, "memory budget",
                     "the step must fit in {}, with this way to recompute it needs {}",
                     format_bytes(options.budget), format_bytes(choice.peak()));
  if (options.mode != Mode::budget) return follow(choice);
  // A plan that fits also fits in blocks. If the layouts of its steps do not, every step moves
  // values; a little more recomputation may avoid that.
  for (const Candidate& other : search.candidates()) {
    if (other.peak() > options.budget) continue;
    const StepSettings candidate = follow(other);
    const Forecast packed =
        planner.forecast(candidate.shortened(), {.memory = DryMemory::unlimited});
    if (packed.memory.moved == 0) return candidate;
  }
  return follow(choice);
}

}  // namespace

StepSettings with_recompute(const Planner& planner, const StepSettings& settings,
                            const AutoRecomputeOptions& recompute) {
  const AutoRecomputeOptions options = recompute.of_a_run();
  try {
    return planned_settings(planner, settings, options);
  } catch (const OutOfMemory& error) {
    StepSettings wanted = settings;
    wanted.budget = options.budget;
    throw OutOfMemory(fmt::format("{}\n{}", error.what(), remedies_text(planner, wanted, 0)));
  }
}

PlannedRun::PlannedRun(TrainingProgram program,
                       const std::optional<AutoRecomputeOptions>& recompute,
                       std::function<void(const MemoryTrace&)> on_trace)
    : planner_(std::move(program)), settings_(planner_.settings()), on_trace_(std::move(on_trace)) {
  Device& device = *default_device();
  device.trim();  // of what an earlier run left, as predicted
  if (recompute && planner_.trains()) settings_ = with_recompute(planner_, settings_, *recompute);
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

void PlannedRun::before_step(int64_t step, int64_t total) {
  if (!on_trace_) return;
  if (trace_begin_ < 0) {  // traces an update in steady state, at most 8 of its steps
    const int64_t update = settings_.accumulate;
    trace_begin_ = std::min(step + 2 * update, total - 1);
    trace_end_ = trace_begin_ + std::min<int64_t>(update, 8);
  }
  if (step == trace_begin_) {
    default_device()->start_trace();
    tracing_ = true;
  }
  if (step == trace_end_) stop_trace();
}

void PlannedRun::after_steps() {
  stop_trace();
  steps_ = default_device()->memory_report();
}

void PlannedRun::stop_trace() {
  if (!std::exchange(tracing_, false)) return;
  const MemoryTrace trace = default_device()->stop_trace();
  timeline_ = live_bytes(trace);
  on_trace_(trace);
}

PlannedRun::~PlannedRun() {
  if (tracing_) default_device()->stop_trace();
}

RunAccount PlannedRun::account() {
  RunAccount account{.memory = default_device()->memory_report(),
                     .steps_peak = steps_.peak,
                     .predicted_peak = planner_.peak(settings_),
                     .budget = settings_.budget,
                     .difference = scope_->difference(),
                     .savings = attribute_savings(planner_, settings_),
                     .host_peak = host_memory().peak,
                     .segment_problems = segment_problems_,
                     .timeline = timeline_};
  account.memory.naive = steps_.naive;
  return account;
}

std::string RunAccount::str() const {
  std::string text =
      memory.str() +
      (predicted_peak == memory.peak
           ? fmt::format("A dry run predicts this peak to the byte ({}).", predicted_peak)
           : fmt::format("A dry run predicts {} bytes, but the peak was {}.", predicted_peak,
                         memory.peak));
  if (!rank_peaks.empty()) {
    const auto [least, most] = std::ranges::minmax_element(rank_peaks);
    int exact = 0;
    for (size_t i = 0; i < rank_peaks.size(); ++i)
      exact += rank_peaks[i] == predicted_rank_peaks[i];
    text +=
        fmt::format("\nOf {} ranks, {} to the byte: rank {} needs least, {}, and rank {} most, {}.",
                    rank_peaks.size(), exact, least - rank_peaks.begin(), format_bytes(*least),
                    most - rank_peaks.begin(), format_bytes(*most));
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
