// How the attention kernels are cut on a device: what the op asks for, and what a backend expects.
#pragma once

#include "rewind/core/backend/backend.h"

namespace rw {

inline constexpr uint32_t most_head_dim = 256;

// Rows of a tile. CPU drivers keep more rows in registers (really on the stack).
inline uint32_t attention_rows(const DeviceInfo& device) {
  return device.is_cpu ? 16 : 4;
}
// Columns of a lane: 8 where 4 each would not reach over the head. With 8, the gradients' tiles do
// not fit the registers of NVIDIA's and Apple's GPUs (benchmarks/pipelines); making scores twice is
// less.
inline uint32_t attention_width(const DeviceInfo& device, uint32_t dim, std::string_view kernel) {
  const bool fits = device.is_cpu || kernel == "attention";
  return fits && dim > device.subgroup_size * 4 ? 8 : 4;
}

}  // namespace rw
