// Cooperative matrices: those that a device offers, and those that kernels use.
#pragma once

#include <array>
#include <span>

#include "vk.h"
#include "vk_compat.h"

namespace rw::vulkan {

// The subgroups in a workgroup of most kernels.
inline constexpr uint32_t matrix_subgroups = 8;

// {M, N, K}: factors of M x K and K x N, sums of M x N. All zero if there is none.
using MatrixShape = std::array<uint32_t, 3>;

struct CooperativeMatrices {
  MatrixShape f16{}, bf16{};                   // by the factors' type; sums are f32
  uint32_t subgroup = 0;                       // the size of those that hold one matrix
  uint32_t tile_subgroups = matrix_subgroups;  // subgroups that make a tile of a product

  const MatrixShape& shape(bool brain) const { return brain ? bf16 : f16; }
};

// Returns the shape in which a subgroup multiplies factors of that type with sums of f32: the
// largest one in `offered` that the kernels support (cooperative.glsl).
MatrixShape matrix_shape(std::span<const VkCooperativeMatrixPropertiesKHR> offered,
                         VkComponentTypeKHR factor);

// Intel: 128 registers for a thread in the smallest subgroups, half as many in those of twice that
// size. Other vendors' GPUs have 128 or 255 at any size.
bool has_few_registers(VkDriverId driver);

// Returns the size of the subgroups for which kernels with cooperative matrices are compiled, so
// that a driver need not find out by itself: 32 on AMD, where both sizes work; the smallest on
// Intel, where larger ones spill (benchmarks/pipelines); others have one size. 0 if the kernels
// support none.
uint32_t matrix_subgroup(VkDriverId driver, uint32_t reported, uint32_t least, uint32_t most);

// Returns the number of subgroups of this size that make a tile of a product: 4 if a subgroup's
// registers hold 64 x 64 sums and the factors of a step, which reads a third less from shared
// memory (NVIDIA: 255 per thread); as many as have 128 threads where they hold only 32 sums per
// thread (Intel, whose compiler holds sums twice in a loop); else 8.
uint32_t tile_subgroups(VkDriverId driver, uint32_t subgroup);

CooperativeMatrices query_cooperative(VkInstance instance, VkPhysicalDevice device);

}  // namespace rw::vulkan
