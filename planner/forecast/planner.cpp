#include "planner/forecast/planner.h"

#include <algorithm>
#include <cmath>

#include "planner/forecast/largest.h"
#include "planner/forecast/work_sums.h"

namespace rw {

namespace {

// Adds what `times` further steps do beside the update, if `of` steps have done `work`.
void add_steps(WorkByPhase& sum, const WorkByPhase& work, uint32_t times, uint32_t of) {
  const double share = static_cast<double>(times) / of;
  const auto part = [&](uint64_t n) {
    return static_cast<uint64_t>(std::llround(static_cast<double>(n) * share));
  };
  for (int i = 0; i < phase_count; ++i) {
    if (static_cast<Phase>(i) == Phase::update) continue;
    Work& to = sum[i];
    const Work& w = work[i];
    to = {to.flops + w.flops * share,       to.bytes + part(w.bytes),
          to.over_bus + part(w.over_bus),   to.calls + part(w.calls),
          to.offloaded + part(w.offloaded), to.on_host + part(w.on_host)};
  }
}

// The settings with the steps of a window that need most. Steps between the first one and the last
// one of a window differ from both where there are several ranks.
StepSettings of_few_steps(const StepSettings& settings) {
  StepSettings fewer = settings.shortened();
  if (settings.ranks == 1) fewer.accumulate = std::min(settings.accumulate, 2u);
  return fewer;
}

// Runs the program on the default device, which is dry.
class DryProgram {
 public:
  DryProgram(const TrainingProgram& program, const StepSettings& settings)
      : program_(program), settings_(settings), scope_(settings), steps_(program.make(settings)) {
    if (program_.steps) shapes_ = program_.steps(settings.batch);
    if (program_.loads) steps_->copy_weights();
  }

  // This is what some steps do.
  struct Done {
    WorkByPhase work{};
    uint64_t from_files = 0;  // bytes that they read
  };

  // Runs all that the program runs, with two updates in place of many.
  void run() {
    update();
    update();
    last_steps();
    finish();
  }

  // The same, with fewer steps that need as much memory: a window that is not full comes first, and
  // windows have a first step and a last one. Where an update takes one step, that is enough if it
  // leaves as much memory as it found: all that follow are like it. Returns what an update of
  // `steps` steps does.
  Done run_briefly(uint32_t steps) {
    if (settings_.accumulate > 1 && program_.trains) {
      steps_->dry_step(shapes_.front());
      steps_->flush();
      begun_ = true;
    }
    const bool may_be_like_others = begun_ || begins_like_others();
    const Lasting found = lasting();
    Done update = window(steps);
    const bool is_like_others = settings_.accumulate > 1 || lasting() == found;
    if (!may_be_like_others || !is_like_others) update = window(steps);
    other_batches();
    finish();
    return update;
  }
  FileReads reads() const { return steps_->file_reads(); }

  // Takes full batches, except for the program's first batch.
  void update() {
    for (uint32_t i = 0; i < settings_.accumulate; ++i) step();
  }
  void step() {
    if (!program_.trains) return;
    steps_->dry_step(begun_ ? BatchShape{} : shapes_.front());
    begun_ = true;
  }

  // Runs batches of every size in every place of a window.
  void other_batches() {
    for (size_t k = shapes_.size() > 1 ? 0 : 1; program_.trains && k < shapes_.size(); ++k)
      for (uint32_t i = 0; i < settings_.accumulate; ++i) steps_->dry_step(shapes_[k]);
  }

  // The same, and a window that is not full.
  void last_steps() {
    other_batches();
    if (!program_.trains || settings_.accumulate == 1) return;
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

  Done done() const { return {default_device()->work(), reads().bytes}; }
  // Whether the first step has a full batch, and nothing plans from it.
  bool begins_like_others() const {
    const BatchShape& first = shapes_.front();
    return first.length == 0 && first.rows_or(settings_.batch) == settings_.batch &&
           settings_.budget == 0 && settings_.ranks == 1;
  }

  // Takes the steps of a window, of which those in the middle are alike; returns what an update of
  // `steps` steps does.
  Done window(uint32_t steps) {
    const Done before = done();
    step();
    const Done first = since(before, done());
    for (uint32_t i = 1; i < settings_.accumulate; ++i) step();
    Done update = since(before, done());
    if (steps > settings_.accumulate) {
      const Done others = since(first, update);
      const uint32_t more = steps - settings_.accumulate, of = settings_.accumulate - 1;
      add_steps(update.work, others.work, more, of);
      update.from_files += others.from_files * more / of;
    }
    return update;
  }

  // The bytes on the device and on the host.
  using Lasting = std::pair<uint64_t, uint64_t>;
  static Lasting lasting() {
    const MemoryReport report = default_device()->memory_report();
    return {report.live, report.host_live};
  }

  static Done since(const Done& before, const Done& after) {
    return {work_since(after.work, before.work), after.from_files - before.from_files};
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

std::vector<StepTrace> Planner::steps(const StepSettings& settings) const {
  const auto run = [&] {
    DryProgram program(program_, settings);
    program.run();
    empty({1});  // ends a step that an optimizer only announced the end of, so that it is learnt
  };
  return dry_run(open(DryMemory::unlimited), run, {.pack = false}).steps;
}

Forecast Planner::measure(const StepSettings& settings, DryMemory memory) const {
  const StepSettings fewer = of_few_steps(settings);
  DryProgram::Done update;
  uint64_t buffers = 0;
  const auto body = [&] {
    DryProgram program(program_, fewer);
    update = program.run_briefly(settings.accumulate);
    buffers = program.reads().buffers;
  };
  Forecast found = dry_run(open(memory), body, {.pack = false});
  found.work = update.work;
  found.from_files = update.from_files;
  found.memory.host_peak += buffers;
  found.samples = static_cast<double>(settings.batch) * settings.accumulate;
  return found;
}

bool Planner::fits_in_blocks(const StepSettings& settings, uint64_t bytes) const {
  const StepSettings fewer = of_few_steps(settings);
  const auto body = [&] { DryProgram(program_, fewer).run_briefly(fewer.accumulate); };
  try {
    const Forecast values = dry_run(open(DryMemory::unlimited), body, {.pack = false});
    dry_run(open(DryMemory::blocks_of_device), body,
            {.memory_limit = bytes, .learnt = values.steps});
    return true;
  } catch (const OutOfMemory&) {
    return false;
  }
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
      return measure(tried, DryMemory::blocks_of_device).memory.peak;
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
  const uint32_t steps = settings.shortened().accumulate;
  settings = of_few_steps(settings.plain());
  const auto run = [this, settings, steps, runs = 0]() mutable {
    DryProgram program(program_, settings);
    // The first that follows a plan, after two that have none, shows where a step differs from the
    // one before.
    if (++runs == 3 && settings.accumulate == 1) program.update();
    program.run_briefly(steps);
  };
  return Search([this] { return open(DryMemory::unlimited); }, run, options);
}

}  // namespace rw
