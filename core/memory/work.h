// Device work, counted by phase of the training step.
#pragma once

#include <array>
#include <cstdint>

#include "../base/thread_state.h"

namespace rw {

// The kernels that were queued.
struct Work {
  double flops = 0;        // of matrix products, convolutions and attention
  uint64_t bytes = 0;      // read and written by kernels
  uint64_t over_bus = 0;   // the part of them that lies in host memory
  uint64_t calls = 0;      // kernels
  uint64_t offloaded = 0;  // bytes copied between the device's memory and the host's, either way
  uint64_t on_host = 0;    // read and written by kernels that the host's processor ran
};
// By Phase.
using WorkByPhase = std::array<Work, phase_count>;

double total_flops(const WorkByPhase& work);      // recomputation included
double recompute_share(const WorkByPhase& work);  // FLOPs of replays over those of the rest
double modelled_recompute_share(const WorkByPhase& work);  // the same by OpCost::total()
OpCost replay_cost(const WorkByPhase& work);               // FLOPs and bytes of replays
uint64_t offloaded_bytes(const WorkByPhase& work);         // the sum of Work::offloaded

}  // namespace rw
