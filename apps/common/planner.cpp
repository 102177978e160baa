#include "apps/common/planner.h"

#include <algorithm>

#include "apps/common/largest.h"
#include "rewind/backends/open.h"
#include "rewind/core/ops/ops.h"
#include "rewind/io/model.h"

namespace rw {

namespace {

// Holds the default device to the budget of the settings, if they have one.
std::unique_ptr<MemoryBudget> budget_of(const StepSettings& settings) {
  return settings.budget ? std::make_unique<MemoryBudget>(settings.budget) : nullptr;
}

// The program on a dry device, which is the default one.
class DryProgram {
 public:
  DryProgram(const MakeSteps& make, const RunOutline& outline, const StepSettings& settings)
      : outline_(outline),
        settings_(settings),
        budget_(budget_of(settings)),
        steps_(make(settings)) {
    if (outline.steps) shapes_ = outline.steps(settings.batch);
    if (outline.loads) copy_weights();
  }

  TrainingSteps& steps() { return *steps_; }

  // All that the program does, with two updates in the place of many.
  void run() {
    update();
    update();
    last_steps();
    finish();
  }

  // Of full batches, but for the program's first one.
  void update() {
    for (uint32_t i = 0; outline_.trains && i < settings_.accumulate; ++i, begun_ = true)
      steps_->dry_step(begun_ ? BatchShape{} : shapes_.front());
  }

  // Batches of every size in every place of a window, and a window that is not full.
  void last_steps() {
    if (!outline_.trains) return;
    for (size_t k = shapes_.size() > 1 ? 0 : 1; k < shapes_.size(); ++k)
      for (uint32_t i = 0; i < settings_.accumulate; ++i) steps_->dry_step(shapes_[k]);
    if (settings_.accumulate == 1) return;
    steps_->dry_step(shapes_.back());
    steps_->flush();
  }

  // What follows after the steps.
  void finish() {
    if (outline_.saves) {
      copy_weights();
      default_device()->end_step();
    }
    evaluate();
  }

 private:
  // A file's tensors are dense: others go through a copy.
  void copy_weights() {
    const NoGrad guard;
    for (const NamedTensor& t : torch_state_dict(steps_->trained())) contiguous(t.tensor);
  }

  void evaluate() {
    const NoGrad guard;
    steps_->trained().eval();
    const int64_t batch = settings_.evaluation_batch ? settings_.evaluation_batch : settings_.batch;
    const std::vector<BatchShape> full = {{.rows = batch}};
    for (const BatchShape& shape : outline_.evaluation ? outline_.evaluation(batch) : full)
      steps_->dry_evaluation(shape);
  }

  const RunOutline& outline_;
  const StepSettings& settings_;
  std::vector<BatchShape> shapes_ = {{}};  // of the batches of training
  bool begun_ = false;
  std::unique_ptr<MemoryBudget> budget_;
  std::unique_ptr<TrainingSteps> steps_;
};

WorkByPhase difference(WorkByPhase after, const WorkByPhase& before) {
  for (int i = 0; i < phase_count; ++i) {
    after[i].flops -= before[i].flops;
    after[i].bytes -= before[i].bytes;
    after[i].calls -= before[i].calls;
  }
  return after;
}

}  // namespace

Planner::Planner(const Backend& device, MakeSteps make, RunOutline outline)
    : device_(device), make_(std::move(make)), outline_(std::move(outline)) {}

std::unique_ptr<Backend> Planner::open(Room room) const {
  if (room == Room::any) return endless_dry(device_);
  DeviceInfo limits = info();
  if (room == Room::blocks) limits.memory_bytes = UINT64_MAX;
  return device_.dry(limits);
}

std::vector<StepTrace> Planner::steps(const StepSettings& settings,
                                      const Techniques& techniques) const {
  return dry_run(open(Room::any), [&] { DryProgram(make_, outline_, settings).run(); },
                 {.techniques = techniques, .pack = false})
      .steps;
}

StepForecast Planner::forecast(const StepSettings& settings, const ForecastOptions& options) const {
  StepForecast result;
  const auto body = [&] {
    DryProgram program(make_, outline_, settings);
    Device& device = *default_device();
    program.update();
    if (options.trace) {
      program.update();
      device.start_trace();
    }
    const WorkByPhase before = device.work();
    program.update();
    result.work = difference(device.work(), before);
    if (options.trace) result.trace = device.stop_trace();
    const uint64_t naive = device.memory_report().naive;
    program.last_steps();
    result.steps_peak = device.memory_report().peak;
    program.finish();
    result.memory = device.memory_report();
    result.memory.naive = naive;
  };
  dry_run(open(options.room), body,
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

int64_t Planner::evaluation_batch(StepSettings settings, int64_t most,
                                  uint64_t memory_limit) const {
  settings.accumulate = std::min(settings.accumulate, 3u);
  const ForecastOptions options{.room = memory_limit ? Room::device : Room::any,
                                .memory_limit = memory_limit};
  const auto needs = [&](int64_t rows) -> std::optional<MemoryReport> {
    settings.evaluation_batch = rows;
    try {
      return forecast(settings, options).memory;
    } catch (const OutOfMemory&) {
      return std::nullopt;
    }
  };
  const auto least = needs(settings.batch);
  if (!least) return settings.batch;  // the run will say so
  for (int64_t rows = most; rows > settings.batch; rows /= 2) {
    const auto memory = needs(rows);
    if (memory && memory->peak <= least->peak && memory->peak_reserved <= least->peak_reserved)
      return rows;
  }
  return settings.batch;
}

std::vector<SegmentReport> Planner::segment_reports(const StepSettings& settings) const {
  std::vector<SegmentReport> reports;
  const auto step = [&] {
    const std::unique_ptr<TrainingSteps> steps = make_(settings);
    report_segments(*Tape::current(),
                    [&](std::vector<SegmentReport> found) { reports = std::move(found); });
    steps->dry_step();
  };
  dry_run(open(Room::any), step, {.pack = false});
  return reports;
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
                           DryProgram program(make_, outline_, these);
                           program.steps().record(graph);
                           program.run();
                         });
}

}  // namespace rw
