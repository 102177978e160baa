// Predicts a program's training steps by running them on a dry device.
#pragma once

#include "apps/common/training.h"
#include "rewind/core/predict/dry_run.h"
#include "rewind/core/predict/search.h"
#include "rewind/core/predict/segment_report.h"

namespace rw {

// What a dry run found. Work and samples are of one update: `accumulate` steps.
struct StepForecast {
  MemoryReport memory;      // of the whole program; `naive`: of a step
  uint64_t steps_peak = 0;  // without saving and evaluation
  WorkByPhase work{};
  double samples = 0;
  uint64_t allocations = 0;
  std::optional<MemoryTrace> trace;  // of the last update, where asked for

  double flops() const { return total_flops(work); }
  double flops_per_sample() const { return flops() / samples; }
  double recompute_share() const { return rw::recompute_share(work); }
};

// What the dry device has of the one that it predicts.
enum class Room {
  device,  // all that one's memory
  blocks,  // as much memory as wanted, in blocks as large as that one gives
  any,     // as much memory as wanted, in blocks of any size
};

struct ForecastOptions {
  Room room = Room::device;
  uint64_t memory_limit = 0;  // 0: none
  Techniques techniques = {};
  bool trace = false;
};

class Planner {
 public:
  // `device`: real or dry. It must outlive the planner; nothing is run on it.
  Planner(const Backend& device, MakeSteps make, RunOutline outline = {});

  const DeviceInfo& info() const { return device_.info(); }
  const RunOutline& outline() const { return outline_; }

  // What the steps allocate, for Device::learn: a run is then packed from its first step on.
  std::vector<StepTrace> steps(const StepSettings& settings,
                               const Techniques& techniques = {}) const;
  // Runs the program after it has learnt that, with two updates: a first one, and one like all that
  // follow. OutOfMemory where it does not fit.
  StepForecast forecast(const StepSettings& settings, const ForecastOptions& options = {}) const;

  // The largest settings.batch whose steps fit in `bytes` of device memory; 0: not even one sample.
  // `guess` is tried first.
  int64_t largest_batch(StepSettings settings, uint64_t bytes, int64_t guess = 1) const;

  // The most samples to evaluate at a time, at most `most`, that the whole program with them needs
  // no more memory than with settings.batch.
  int64_t evaluation_batch(StepSettings settings, int64_t most, uint64_t memory_limit) const;

  // What the marks of a step's forward pass do (core/predict/segment_report.h).
  std::vector<SegmentReport> segment_reports(const StepSettings& settings) const;

  // The forward pass of one step, nothing recomputed.
  RecordedGraph record(StepSettings settings) const;
  // Recomputation for these steps. It holds for any batch: the ops are the same.
  RecomputeSearch search(const StepSettings& settings) const;

 private:
  std::unique_ptr<Backend> open(Room room) const;

  const Backend& device_;
  MakeSteps make_;
  RunOutline outline_;
};

}  // namespace rw
