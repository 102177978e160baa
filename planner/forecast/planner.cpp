#include "planner/forecast/planner.h"

#include <algorithm>
#include <cmath>

#include "planner/forecast/largest.h"

namespace rw {

namespace {

WorkByPhase work_since(WorkByPhase after, const WorkByPhase& before) {
  for (int i = 0; i < phase_count; ++i) {
    after[i].flops -= before[i].flops;
    after[i].bytes -= before[i].bytes;
    after[i].over_bus -= before[i].over_bus;
    after[i].calls -= before[i].calls;
    after[i].offloaded -= before[i].offloaded;
    after[i].on_host -= before[i].on_host;
  }
  return after;
}

// Runs the program on the default device, which is dry.
class DryProgram {
 public:
  DryProgram(const TrainingProgram& program, const StepSettings& settings)
      : program_(program), settings_(settings), scope_(settings), steps_(program.make(settings)) {
    if (program_.steps) shapes_ = program_.steps(settings.batch);
    if (program_.loads) steps_->copy_weights();
  }

  // Runs all that the program runs, with two updates in place of many. Returns the work of the
  // second one, and sets `from_files`, if given, to the bytes of files that it reads.
  WorkByPhase run(uint64_t* from_files = nullptr) {
    const Device& device = *default_device();
    update();
    const WorkByPhase before = device.work();
    const uint64_t read = reads().bytes;
    update();
    const WorkByPhase work = work_since(device.work(), before);
    if (from_files) *from_files = reads().bytes - read;
    last_steps();
    finish();
    return work;
  }
  FileReads reads() const { return steps_->file_reads(); }

  // Takes full batches, except for the program's first batch.
  void update() {
    for (uint32_t i = 0; program_.trains && i < settings_.accumulate; ++i, begun_ = true)
      steps_->dry_step(begun_ ? BatchShape{} : shapes_.front());
  }

  // Runs batches of every size in every place of a window, and a window that is not full.
  void last_steps() {
    if (!program_.trains) return;
    for (size_t k = shapes_.size() > 1 ? 0 : 1; k < shapes_.size(); ++k)
      for (uint32_t i = 0; i < settings_.accumulate; ++i) steps_->dry_step(shapes_[k]);
    if (settings_.accumulate == 1) return;
    steps_->dry_step(shapes_.back());
    steps_->flush();
  }

  // Runs what follows the steps.
  void finish() {
    if (program_.saves) {
      steps_->save_weights(settings_.rank == 0);
      default_device()->end_step();
    }
    evaluate();
  }

 private:
  void evaluate() {
    const NoGrad guard;
    const int64_t batch = settings_.evaluation_batch ? settings_.evaluation_batch : settings_.batch;
    const std::vector<BatchShape> full = {{.rows = batch}};
    for (const BatchShape& shape : program_.evaluation ? program_.evaluation(batch) : full)
      steps_->dry_evaluation(shape);
  }

  const TrainingProgram& program_;
  const StepSettings& settings_;
  std::vector<BatchShape> shapes_ = {{}};  // of the batches of training
  bool begun_ = false;
  const SettingsScope scope_;
  std::unique_ptr<TrainingSteps> steps_;
};

}  // namespace

Planner::Planner(TrainingProgram program, const Backend& device)
    : program_(std::move(program)), device_(device) {
  check<ValueError>(program_.make != nullptr, "Planner",
                    "the program must have a make(), got none");
}

bool Planner::can_offload(const StepSettings& settings) const {
  return trains() && program_.words.contains("offload") && info().host_bandwidth.gains() &&
         settings.shard == "none";
}

bool Planner::can_fuse(const StepSettings& settings) const {
  return trains() && program_.words.contains("fused") && settings.ranks == 1;
}

std::unique_ptr<Backend> Planner::open(DryMemory memory) const {
  if (memory == DryMemory::unlimited) return endless_dry(device_);
  DeviceInfo limits = info();
  if (memory == DryMemory::blocks_of_device) limits.memory_bytes = UINT64_MAX;
  return device_.dry(limits);
}

Forecast Planner::dry(const StepSettings& settings, DryMemory memory) const {
  WorkByPhase work{};
  uint64_t from_files = 0, buffers = 0;
  const auto body = [&] {
    DryProgram program(program_, settings);
    work = program.run(&from_files);
    buffers = program.reads().buffers;
  };
  Forecast found = dry_run(open(memory), body, {.pack = false});
  found.work = work;
  found.from_files = from_files;
  found.memory.host_peak += buffers;
  found.samples = static_cast<double>(settings.batch) * settings.accumulate;
  return found;
}

std::vector<StepTrace> Planner::steps(const StepSettings& settings) const {
  return dry(settings).steps;
}

// All steps but the update are alike.
Forecast Planner::measure(const StepSettings& settings, DryMemory memory) const {
  const StepSettings fewer = settings.shortened();
  Forecast found = dry(fewer, memory);
  const double times = static_cast<double>(settings.accumulate) / fewer.accumulate;
  found.samples *= times;
  const auto scaled = [&](uint64_t n) {
    return static_cast<uint64_t>(std::llround(static_cast<double>(n) * times));
  };
  for (int i = 0; i < phase_count; ++i) {
    Work& work = found.work[i];
    if (static_cast<Phase>(i) == Phase::update) continue;
    work = {work.flops * times, scaled(work.bytes),     scaled(work.over_bus),
            scaled(work.calls), scaled(work.offloaded), scaled(work.on_host)};
  }
  found.from_files = scaled(found.from_files);
  return found;
}

Forecast Planner::forecast(const StepSettings& settings, const ForecastOptions& options) const {
  Forecast result;
  const auto body = [&] {
    DryProgram program(program_, settings);
    Device& device = *default_device();
    program.update();
    if (options.trace) {
      program.update();
      device.start_trace();
    }
    const WorkByPhase before = device.work();
    const uint64_t read = program.reads().bytes;
    program.update();
    result.work = work_since(device.work(), before);
    result.from_files = program.reads().bytes - read;
    if (options.trace) result.trace = device.stop_trace();
    const uint64_t naive = device.memory_report().naive;
    program.last_steps();
    result.steps_peak = device.memory_report().peak;
    program.finish();
    result.memory = device.memory_report();
    result.memory.naive = naive;
    result.memory.host_peak += program.reads().buffers;
  };
  dry_run(open(options.memory), body,
          {.memory_limit = options.memory_limit, .learnt = steps(settings)});
  result.samples = static_cast<double>(settings.batch) * settings.accumulate;
  if (result.trace)
    result.allocations = static_cast<uint64_t>(std::ranges::count_if(
        result.trace->tensors, [](const TracedTensor& t) { return t.begin > 0; }));
  return result;
}

int64_t Planner::largest_batch(const StepSettings& settings, uint64_t bytes, int64_t guess,
                               Forecast* forecast) const {
  StepSettings tried = settings.shortened();
  const auto needs = [&](int64_t batch) -> std::optional<uint64_t> {
    tried.batch = batch;
    try {
      return dry(tried, DryMemory::blocks_of_device).memory.peak;
    } catch (const OutOfMemory&) {  // a tensor larger than blocks, or a budget of the settings
      return std::nullopt;
    }
  };
  const int64_t most = largest_within(needs, bytes, guess);
  check<ValueError>(most < no_largest, "Planner",
                    "the program's memory must grow with settings.batch, got the same for all");
  if (most == 0) return 0;
  // So far the live values fit. Blocks are larger, without a regular relation; the last batch that
  // fitted gives the estimate, at first one without a limit.
  Forecast found;
  double blocks_per_peak = 0;
  const auto reserved = [&](int64_t batch) -> std::optional<uint64_t> {
    if (batch > most) return std::nullopt;
    tried.batch = batch;
    ForecastOptions options{.memory = DryMemory::blocks_of_device, .memory_limit = bytes};
    const auto measure = [&] {
      Forecast made = this->forecast(tried, options);
      blocks_per_peak = static_cast<double>(made.memory.peak_reserved) /
                        static_cast<double>(std::max<uint64_t>(1, made.memory.peak));
      return made;
    };
    try {
      found = measure();
      return found.memory.peak_reserved;
    } catch (const OutOfMemory&) {
      options.memory_limit = 0;
      if (blocks_per_peak == 0) measure();
      const double more = blocks_per_peak * static_cast<double>(*needs(batch));
      return std::max(bytes + 1, static_cast<uint64_t>(more));
    }
  };
  const int64_t batch = largest_within(reserved, bytes, most);
  if (!forecast || batch == 0) return batch;
  tried = settings;
  tried.batch = batch;
  const auto samples = static_cast<double>(batch) * settings.accumulate;
  const bool is_known = found.samples == samples;  // the last one that fitted, and in full
  *forecast = is_known ? std::move(found)
                       : this->forecast(
                             tried, {.memory = DryMemory::blocks_of_device, .memory_limit = bytes});
  return batch;
}

int64_t Planner::evaluation_batch(StepSettings settings, int64_t most,
                                  uint64_t memory_limit) const {
  settings = settings.shortened();
  const ForecastOptions options{
      .memory = memory_limit ? DryMemory::of_device : DryMemory::unlimited,
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
    const SettingsScope scope(settings);
    const std::unique_ptr<TrainingSteps> steps = program_.make(settings);
    report_segments(*Tape::current(),
                    [&](std::vector<SegmentReport> found) { reports = std::move(found); });
    steps->dry_step({});
  };
  dry_run(open(DryMemory::unlimited), step, {.pack = false});
  return reports;
}

Graph Planner::record(StepSettings settings) const {
  Graph graph;
  settings = settings.plain();
  const auto step = [&] {
    const SettingsScope scope(settings);
    const std::unique_ptr<TrainingSteps> steps = program_.make(settings);
    const PlanFollower recording({}, &graph);
    steps->dry_step({});
  };
  dry_run(open(DryMemory::unlimited), step, {.pack = false});
  return graph;
}

Search Planner::search(StepSettings settings, const AutoRecomputeOptions& options) const {
  settings = settings.plain().shortened();
  return Search([this] { return open(DryMemory::unlimited); },
                [this, settings] { DryProgram(program_, settings).run(); }, options);
}

}  // namespace rw
