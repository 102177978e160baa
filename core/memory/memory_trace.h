// The events in a device's memory, one by one: the input of timelines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../backend/backend.h"
#include "../base/dtype.h"
#include "../base/shape.h"
#include "../base/thread_state.h"

namespace rw {

// One allocation of a tensor with its shape and dtype. Times are positions in the order of all
// allocations, frees and kernel calls.
struct TracedTensor {
  uint64_t id = 0;            // the storage's
  uint64_t bytes = 0;         // of its range, padding included
  uint32_t block = 0;         // in which it lies
  uint64_t offset = 0;        // in the block
  uint64_t begin = 0;         // 0: before the trace began
  uint64_t end = UINT64_MAX;  // UINT64_MAX: not freed while traced
  Shape shape;                // as allocated
  DType dtype = DType::f32;
  Purpose purpose = Purpose::activation;  // at the end
  Phase phase = Phase::forward;           // in which it was allocated
  std::string op;                         // that allocated it
  int segment = -1;                       // checkpoint segment that was being recorded or replayed
};

// One kernel call.
struct TracedCall {
  uint64_t at = 0;               // its time
  std::string op, kernel;        // the op that called, and the kernel that ran
  Phase phase = Phase::forward;  // in which
  int segment = -1;              // checkpoint segment, as in TracedTensor
  double flops = 0;              // as the op counts them
  uint64_t bytes = 0;            // of its bindings
  double host_us = 0;            // when it was queued, from the start of the trace
};

// Everything that happened between Device::start_trace() and stop_trace().
struct MemoryTrace {
  std::string device;                 // its name
  uint64_t end = 0;                   // one past the last time
  uint64_t limit = 0;                 // Device::memory_limit(); 0: none
  std::vector<uint64_t> block_bytes;  // by block number; 0: no such block
  std::vector<TracedTensor> tensors;  // in the order of `begin`
  std::vector<TracedCall> calls;      // call i is KernelTime::call == i
  std::vector<KernelTime> times;      // empty on devices without timestamps
  std::vector<uint64_t> steps;        // times at which a training step ended
};

}  // namespace rw
