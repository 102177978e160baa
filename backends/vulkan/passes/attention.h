// The passes of attention's kernels on a device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "../device/caps.h"
#include "passes.h"

namespace rw::vulkan {

// The modules that make tiles of `attention`, `attention_dq` and `attention_dkv`, with a workgroup
// for each.
struct AttentionTile {
  std::string module;
  uint32_t rows;
  uint32_t results;  // constant RESULTS: 64 columns of the result each
};
AttentionTile attention_tile(const Caps& caps, uint32_t dim, std::string_view kernel);
// Returns the same tile with cooperative matrices, which has the whole width of the head, if they
// support attention of this dtype: one of 64 rows, which loads each factor for more products, if
// `heads` results of `rows` rows have enough of them for the device.
AttentionTile attention_matrix_tile(const Caps& caps, DType dtype, uint32_t dim,
                                    std::string_view kernel, uint32_t rows, uint64_t heads);
bool attends_by_matrices(const Caps& caps, DType dtype);

// attention, attention_dq, attention_dkv, attention_dmask. ShapeError if a thread of this device
// does not have the time for this many keys.
void add_attention(Passes& passes, const Caps& caps, const KernelCall& call);

}  // namespace rw::vulkan
