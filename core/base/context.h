// The context of an allocation: its purpose, the op, and the phase of a training step. Memory
// reports, timelines and error messages show it.
#pragma once

#include <cstdint>

namespace rw {

class Device;

// What memory is taken for: a parameter (buffers of modules, too), its gradient, state of an
// optimizer, an activation (every other tensor), workspace of a kernel, data from the host.
enum class Purpose : uint8_t { parameter, gradient, optimizer, activation, workspace, data };

inline constexpr int purpose_count = 6;  // values of Purpose
const char* name(Purpose p);             // "parameters", "gradients", ...: for reports

// Where in a training step work is done: forward, backward, replay (records run again in backward),
// update (by the optimizer).
enum class Phase : uint8_t { forward, backward, replay, update };

inline constexpr int phase_count = 4;  // values of Phase
const char* name(Phase phase);         // "forward", ...

// Where memory is taken: the device's own, or memory of the host that its kernels reach over the
// bus.
enum class MemoryPlace : uint8_t { device, host };

// What the framework does to save memory, each to be switched off for comparison.
struct Techniques {
  bool inplace = true;   // ops overwrite inputs that nobody needs
  bool segments = true;  // checkpoint segments drop and replay
};

// Device work: what running an op once costs.
struct OpCost {
  double flops = 0;    // of matrix products, convolutions and attention
  uint64_t bytes = 0;  // read and written by its kernels

  // In FLOPs: memory traffic counts as what a GPU computes meanwhile (10 TFLOP/s at 500 GB/s).
  double total() const { return flops + 20.0 * static_cast<double>(bytes); }
};

// What a thread is doing: allocations and kernels are booked under it.
struct Context {
  Purpose purpose = Purpose::activation;    // of allocations
  const char* op = "user";                  // that runs; "user": none does
  Phase phase = Phase::forward;             // of work
  int segment = -1;                         // that is being recorded or replayed
  Techniques techniques;                    // in use
  MemoryPlace place = MemoryPlace::device;  // of allocations
  const Device* only = nullptr;  // in a dry run: its device; values of another one are refused
  OpCost queued;                 // by this thread, ever
};

}  // namespace rw
