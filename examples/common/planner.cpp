#include "examples/common/planner.h"

#include <algorithm>

#include "backends/open.h"
#include "examples/common/largest.h"

namespace rw {

namespace {

// Holds the default device to the budget of the settings, if they have one.
std::unique_ptr<MemoryBudget> budget_of(const StepSettings& settings) {
  return settings.budget ? std::make_unique<MemoryBudget>(settings.budget) : nullptr;
}

void take_update(TrainingSteps& steps, const StepSettings& settings) {
  for (uint32_t i = 0; i < settings.accumulate; ++i) steps.dry_step();
}

WorkByPhase difference(WorkByPhase after, const WorkByPhase& before) {
  for (int i = 0; i < phase_count; ++i) {
    after[i].flops -= before[i].flops;
    after[i].bytes -= before[i].bytes;
    after[i].calls -= before[i].calls;
  }
  return after;
}

}  // namespace

Planner::Planner(const Backend& device, MakeSteps make) : device_(device), make_(std::move(make)) {}

std::unique_ptr<Backend> Planner::open(Room room) const {
  DeviceInfo limits = info();
  if (room != Room::device) limits.memory_bytes = UINT64_MAX;
  if (room == Room::any) limits.max_block_bytes = uint64_t{1} << 62;
  return dry_backend(device_, limits);
}

std::vector<StepTrace> Planner::steps(const StepSettings& settings, const Techniques& techniques) const {
  return dry_run(open(Room::any),
                 [&] {
                   const auto budget = budget_of(settings);
                   const std::unique_ptr<TrainingSteps> steps = make_(settings);
                   take_update(*steps, settings);
                   take_update(*steps, settings);
                 },
                 {.techniques = techniques})
      .steps;
}

StepForecast Planner::forecast(const StepSettings& settings, const ForecastOptions& options) const {
  StepForecast result;
  const auto program = [&] {
    const auto budget = budget_of(settings);
    const std::unique_ptr<TrainingSteps> steps = make_(settings);
    Device& device = *default_device();
    take_update(*steps, settings);
    if (options.trace) {
      take_update(*steps, settings);
      device.start_trace();
    }
    const WorkByPhase before = device.work();
    take_update(*steps, settings);
    result.work = difference(device.work(), before);
    if (options.trace) result.trace = device.stop_trace();
    result.memory = device.memory_report();
  };
  dry_run(open(options.room), program,
          {.memory_limit = options.memory_limit,
           .techniques = options.techniques,
           .learnt = steps(settings, options.techniques)});
  result.samples = static_cast<double>(settings.batch) * settings.accumulate;
  if (result.trace)
    result.allocations = static_cast<uint64_t>(std::ranges::count_if(
        result.trace->tensors, [](const TracedTensor& t) { return t.begin > 0; }));
  return result;
}

int64_t Planner::largest_batch(StepSettings settings, uint64_t bytes, int64_t guess) const {
  // First, second and last step of an update: more of them need no more.
  settings.accumulate = std::min(settings.accumulate, 3u);
  const auto fits = [&](int64_t batch) {
    settings.batch = batch;
    try {
      forecast(settings, {.room = Room::blocks, .memory_limit = bytes});
      return true;
    } catch (const OutOfMemory&) {
      return false;
    }
  };
  return largest(fits, guess);
}

RecordedGraph Planner::record(StepSettings settings) const {
  RecordedGraph graph;
  settings.recompute = nullptr;
  settings.budget = 0;
  dry_run(open(Room::any), [&] {
    const std::unique_ptr<TrainingSteps> steps = make_(settings);
    steps->record(&graph);
    steps->dry_step();
  });
  return graph;
}

RecomputeSearch Planner::search(const StepSettings& settings) const {
  return RecomputeSearch([this] { return open(Room::any); },
                         [this, settings](const Recompute& recompute, RecordedGraph* graph) {
                           StepSettings these = settings;
                           these.budget = 0;
                           these.recompute = std::make_shared<const Recompute>(recompute);
                           const std::unique_ptr<TrainingSteps> steps = make_(these);
                           steps->record(graph);
                           take_update(*steps, these);
                           take_update(*steps, these);
                         });
}

}  // namespace rw
