// How the attention kernels are cut on a device: what the op asks for, and what a backend expects.
#pragma once

#include "backend.h"

namespace rw {

inline constexpr uint32_t most_head_dim = 256;

// ---- a subgroup per tile: CPU drivers, and the gradient of a mask everywhere ----

// Rows of a tile. CPU drivers keep more rows in registers (really on the stack).
inline uint32_t attention_rows(const DeviceInfo& device) {
  return device.is_cpu ? 16 : 4;
}
// Columns of a lane: 8 where 4 each would not reach over the head.
inline uint32_t attention_width(const DeviceInfo& device, uint32_t dim) {
  return device.is_cpu && dim > device.subgroup_size * 4 ? 8 : 4;
}

// ---- a workgroup per tile: GPUs (shaders/attention_tile.glsl, attention_cooperative.glsl) ----

struct AttentionTile {
  const char* kernel;  // of the backend
  uint32_t rows;
  uint32_t results;  // constant RESULTS: 64 columns of the result each
};

// For `attention`, `attention_dq` or `attention_dkv`, of plain arithmetic. Tiles of 64 rows need 32
// KiB of shared memory, and in wide heads and gradients more registers than Apple's GPUs have.
inline AttentionTile attention_tile(const DeviceInfo& device, uint32_t dim,
                                    std::string_view kernel) {
  const bool is_wide = dim > 64, is_large = !is_wide && device.has("large shared memory");
  if (kernel == "attention")
    return is_large ? AttentionTile{"attention_tiled.TILE64", 64, 1}
                    : AttentionTile{"attention_tiled.TILE32", 32,
                                    dim > 128 ? 4u
                                    : is_wide ? 2u
                                              : 1u};
  const bool is_dq = kernel == "attention_dq";
  return {is_dq ? "attention_dq_tiled.TILE32" : "attention_dkv_tiled.TILE32", 32,
          is_wide ? 2u : 1u};
}

// Whether cooperative matrices make attention of this dtype; their tiles need 31 KiB.
inline bool attends_by_matrices(const DeviceInfo& device, DType dtype) {
  return is_half(dtype) && device.has("large shared memory") &&
         device.has(dtype == DType::f16 ? "cooperative matrices" : "bf16 matrices");
}
// The tiles then: the whole width of the head.
inline AttentionTile attention_matrix_tile(uint32_t dim, std::string_view kernel) {
  const char* name = kernel == "attention"      ? "attention_cooperative"
                     : kernel == "attention_dq" ? "attention_dq_cooperative"
                                                : "attention_dkv_cooperative";
  return {name, 32, (dim + 63) / 64};
}

}  // namespace rw
