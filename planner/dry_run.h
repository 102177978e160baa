// Dry runs: the same program, tape, arena and plan on a backend that has no memory and computes
// nothing. The predicted peak equals the real run's to the byte.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "../core/autograd/tape.h"
#include "forecast.h"

namespace rw {

// The options of dry_run().
struct DryRunOptions {
  uint64_t memory_limit = 0;  // of blocks, 0: none but the device's
  bool trace = false;         // record a MemoryTrace
  // Lay steps out offline; without, the peak is the same and reserved bytes are not.
  bool pack = true;
  std::vector<StepTrace> learnt = {};  // steps of an earlier run of the program, see Forecast
};

// Runs `program` with a dry device as the default one. The program builds its own model, takes its
// training steps (two reach steady state, with end_step() after each) and leaves nothing behind:
// meanwhile this thread has a default device, tape and random generator of its own, and other
// threads notice nothing. Reads inside it give zeros; values made outside are refused
// (DeviceError), since they would really change. ValueError if `dry` is not a dry backend. Throws
// what the program throws: OutOfMemory if `memory_limit` is too small.
Forecast dry_run(std::unique_ptr<Backend> dry, const std::function<void()>& program,
                 const DryRunOptions& options = {});

// The same on a prediction of the default device.
Forecast plan(const std::function<void()>& program, const DryRunOptions& options = {});

// A prediction of the device with as much memory as is asked for, in blocks of any size: it plans
// even for what does not fit there. Null if the device cannot be predicted.
std::unique_ptr<Backend> endless_dry(const Backend& device);

}  // namespace rw
