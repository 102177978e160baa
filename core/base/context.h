// The context of an allocation: its purpose, the op, and the phase of a training step. Memory
// reports, timelines and error messages show it.
#pragma once

#include <cstdint>

namespace rw {

class Device;

// The purpose of memory: a parameter (or a buffer of a module), its gradient, state of an
// optimizer, an activation (every other tensor), workspace of a kernel, or data from the host.
enum class Purpose : uint8_t { parameter, gradient, optimizer, activation, workspace, data };

inline constexpr int purpose_count = 6;  // values of Purpose
const char* name(Purpose p);             // "parameters", "gradients", ...: for reports

// The phase of a training step: forward, backward, replay (records run again in backward, and
// values packed in 8 bits and unpacked), update (by the optimizer).
enum class Phase : uint8_t { forward, backward, replay, update };

inline constexpr int phase_count = 4;  // values of Phase
const char* name(Phase phase);         // "forward", ...

// The memory to allocate in: the device's own, or memory of the host that its kernels can reach
// over the bus.
enum class MemoryPlace : uint8_t { device, host };

// Device work: the cost of running an op once.
struct OpCost {
  double flops = 0;    // of matrix products, convolutions and attention
  uint64_t bytes = 0;  // read and written by its kernels

  static constexpr double flops_per_second = 1e13;  // of the GPU that total() assumes

  // In FLOPs: memory traffic counts as what a GPU computes in that time (10 TFLOP/s at 500 GB/s).
  double total() const { return flops + 20.0 * static_cast<double>(bytes); }
};

// The current work of a thread, under which allocations and kernels are accounted.
struct Context {
  Purpose purpose = Purpose::activation;  // of allocations
  const char* op = "user";                // the op that runs; "user": none does
  Phase phase = Phase::forward;           // of work
  int segment = -1;                       // the segment that is being recorded or replayed
  // Ways to save memory, which can be switched off for comparison: ops overwrite inputs that nobody
  // needs, and checkpoint segments drop and replay.
  bool overwrites = true, drops_segments = true;
  MemoryPlace place = MemoryPlace::device;  // of allocations
  MemoryPlace works = MemoryPlace::device;  // where kernels run
  const Device* only = nullptr;  // in a dry run: its device; values of other devices are refused
  OpCost queued;                 // by this thread in all
};

}  // namespace rw
