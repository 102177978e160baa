// NF4 with double quantisation (Dettmers et al. 2023, "QLoRA"), as bitsandbytes stores it: matrices
// of blocks::nf4, and what their blocks share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "block_type.h"

namespace rw::blocks {

// A row of a matrix has two elements a byte, the first one in the high bits; a block is 64 of them.
// Behind the last row lies, in as many further rows as it takes, what the blocks share: the values
// of the 256 codes of scales and an offset, as f32, then for each 256 blocks in the order of the
// rows a factor, an f32, and a byte for each block, the code of its scale. The scale is
// values[code] * factor + offset.
constexpr uint32_t nf4_group = 256;  // blocks that share a factor

std::span<const float, 16> nf4_values();     // of the codes, in rising order
std::array<float, 256> nf4_scale_values();   // of the codes of scales, as bitsandbytes makes them
uint64_t nf4_shared_bytes(uint64_t blocks);  // of what so many blocks share
uint64_t nf4_row_bytes(uint64_t columns);    // of a row, which is whole blocks
// The rows that a matrix takes with what is shared, and the inverse: 0 where no matrix takes so
// many.
uint64_t nf4_stored_rows(uint64_t rows, uint64_t columns);
uint64_t nf4_rows(uint64_t stored_rows, uint64_t columns);

// Where the factor of the block's group, and the code of its scale, lie in what is shared.
uint64_t nf4_factor_at(uint64_t block);
uint64_t nf4_code_at(uint64_t block);
// The scale of the block with this number.
float nf4_scale(const std::byte* shared, uint64_t block);

// Quantises a matrix of whole rows to `stored`, nf4_stored_rows() * nf4_row_bytes() bytes, with the
// bits of bitsandbytes' quantize_4bit on a CPU; the offset, a mean, may differ in its last bit.
// Returns false for elements that are not finite.
bool encode_nf4(std::span<const float> values, uint64_t columns, std::span<std::byte> stored);

}  // namespace rw::blocks
