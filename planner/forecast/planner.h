// Predicts a training program by running it on a dry device.
//   const Planner planner({.make = ..., .settings = {.batch = 64}});  // planner/forecast/program.h
//   std::cout << planner.forecast().str() << fit_table(fit(planner, parse_bytes("8GiB")), ...);
#pragma once

#include "../../core/memory/default_device.h"
#include "../dry_run.h"
#include "../follow/auto_recompute.h"
#include "../follow/search.h"
#include "../follow/segment_report.h"
#include "program.h"

namespace rw {

// What the dry device has of the one that it predicts.
enum class Room {
  device,  // all that one's memory
  blocks,  // as much memory as wanted, in blocks as large as that one gives
  any,     // as much memory as wanted, in blocks of any size
};

// What a forecast assumes.
struct ForecastOptions {
  Room room = Room::device;    // of the dry device
  uint64_t memory_limit = 0;   // bytes of blocks; 0: none
  Techniques techniques = {};  // in use
  bool trace = false;          // record a MemoryTrace of the last update
};

// A program and the device that it is predicted for.
class Planner {
 public:
  // `device`: real or dry. It must outlive the planner; nothing is run on it.
  explicit Planner(TrainingProgram program, const Backend& device = default_device()->backend());

  const DeviceInfo& info() const { return device_.info(); }           // of that device
  const TrainingProgram& program() const { return program_; }         // that is planned
  const StepSettings& settings() const { return program_.settings; }  // unless others are given
  bool trains() const { return program_.outline.trains; }             // or evaluates only

  // What the steps allocate, for Device::learn: a run is then packed from its first step on.
  std::vector<StepTrace> steps(const StepSettings& settings,
                               const Techniques& techniques = {}) const;
  // The most bytes alive at a time, exactly, wherever they lie; cheaper than a forecast.
  uint64_t peak(const StepSettings& settings, const Techniques& techniques = {}) const;
  // Runs the program after it has learnt its steps, with two updates: a first one, and one like all
  // that follow. OutOfMemory where it does not fit.
  Forecast forecast(const StepSettings& settings, const ForecastOptions& options = {}) const;
  Forecast forecast() const { return forecast(settings()); }

  // The largest settings.batch whose steps fit in `bytes` of device memory; 0: not even one sample.
  // `guess` is tried first.
  // `forecast`: receives that of these steps in as much memory; null: not wanted.
  int64_t largest_batch(const StepSettings& settings, uint64_t bytes, int64_t guess = 1,
                        Forecast* forecast = nullptr) const;

  // The most samples to evaluate at a time, at most `most`, that the whole program with them needs
  // no more memory than with settings.batch.
  int64_t evaluation_batch(StepSettings settings, int64_t most, uint64_t memory_limit) const;

  // What the marks of a step's forward pass do (planner/follow/segment_report.h).
  std::vector<SegmentReport> segment_reports(const StepSettings& settings) const;

  // The forward pass of one step, nothing recomputed.
  Graph record(StepSettings settings) const;
  // Recomputation for these steps. It holds for any batch: the ops are the same.
  Search search(StepSettings settings, const SearchOptions& objective = {}) const;
  // The settings with recomputation as asked for, found by a search: within a budget reserved bytes
  // stay at any time. OutOfMemory naming the least feasible bytes.
  StepSettings with_recompute(const StepSettings& settings,
                              const AutoRecomputeOptions& options) const;

 private:
  std::unique_ptr<Backend> open(Room room) const;
  Forecast dry(const StepSettings& settings, const Techniques& techniques,
               Room room = Room::any) const;

  TrainingProgram program_;
  const Backend& device_;
};

}  // namespace rw
