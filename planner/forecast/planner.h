// Predicts a training program by running it on a dry device.
//   const Planner planner({.make = ..., .settings = {.batch = 64}});  // planner/forecast/program.h
//   std::cout << planner.forecast().str() << fit_table(fit(planner, parse_bytes("8GiB")), ...);
#pragma once

#include "../../core/memory/default_device.h"
#include "../dry_run.h"
#include "../follow/segment_report.h"
#include "../search/search.h"
#include "program.h"

namespace rw {

// The memory of the dry device.
enum class DryMemory {
  of_device,         // that of the device that it predicts
  blocks_of_device,  // as much as wanted, in blocks as large as that one gives
  unlimited,         // as much as wanted, in blocks of any size
};

// The assumptions of a forecast.
struct ForecastOptions {
  DryMemory memory = DryMemory::of_device;  // of the dry device
  uint64_t memory_limit = 0;                // bytes of blocks; 0: none
  bool trace = false;                       // record a MemoryTrace of the last update
};

// A program, and the device that it is predicted for.
class Planner {
 public:
  // `device` may be real or dry. It must outlive the planner; nothing runs on it.
  explicit Planner(TrainingProgram program, const Backend& device = default_device()->backend());

  const DeviceInfo& info() const { return device_.info(); }           // of that device
  const TrainingProgram& program() const { return program_; }         // the program that is planned
  const StepSettings& settings() const { return program_.settings; }  // unless others are given
  bool trains() const { return program_.trains; }                     // or evaluates only
  // Whether its steps may have states and parameters in host memory, where that gains something,
  // and updates inside backward.
  bool can_offload(const StepSettings& settings) const;
  bool can_fuse(const StepSettings& settings) const;

  // The allocations of the steps, for Device::learn: a run is then packed from its first step on.
  std::vector<StepTrace> steps(const StepSettings& settings) const;
  // The work of an update and the exact number of bytes that are alive at once, on the device and
  // on the host, wherever they lie: cheaper than a forecast, which also knows blocks.
  Forecast measure(const StepSettings& settings, DryMemory memory = DryMemory::unlimited) const;
  uint64_t peak(const StepSettings& settings) const { return measure(settings).memory.peak; }
  // Whether the steps of measure() fit in so many bytes of the device's blocks: nearly always what
  // a forecast finds, in less time.
  bool fits_in_blocks(const StepSettings& settings, uint64_t bytes) const;
  // Learns the program's steps, then runs it with two updates: a first one, and one like all that
  // follow. OutOfMemory if it does not fit.
  Forecast forecast(const StepSettings& settings, const ForecastOptions& options = {}) const;
  Forecast forecast() const { return forecast(settings()); }

  // The largest settings.batch whose steps fit in `bytes` of device memory; 0 if not even one
  // sample fits. `guess` is tried first. `forecast` receives that of these steps with unlimited
  // memory, or is null.
  int64_t largest_batch(const StepSettings& settings, uint64_t bytes, int64_t guess = 1,
                        Forecast* forecast = nullptr) const;

  // The most samples to evaluate at a time, at most `most`, with which the whole program needs no
  // more memory than with settings.batch.
  int64_t evaluation_batch(StepSettings settings, int64_t most, uint64_t memory_limit) const;

  // The effect of the marks in a step's forward pass (planner/follow/segment_report.h).
  std::vector<SegmentReport> segment_reports(const StepSettings& settings) const;

  // The graph of one step's forward pass, without recomputation.
  Graph record(StepSettings settings) const;
  // A search for the recomputation of these steps. Its plans hold for any batch, because the ops
  // are the same.
  Search search(StepSettings settings, const AutoRecomputeOptions& options = {}) const;

 private:
  std::unique_ptr<Backend> open(DryMemory memory) const;

  TrainingProgram program_;
  const Backend& device_;
};

}  // namespace rw
