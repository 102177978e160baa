// Makes the blocks of GGUF files of floats: BlockType::encode of the types in ggml_blocks.cpp.
// Blocks of 32 have the bits of ggml's plain quantisers (quantize_row_*_ref in ggml-quants.c of
// https://github.com/ggml-org/ggml); for those of 256 steps and minima are searched.
#pragma once

#include <cstddef>

namespace rw::blocks {

// Each writes a block and returns true, or returns false if no block stands for the values.
bool encode_q4_0(const float* values, std::byte* block);
bool encode_q4_1(const float* values, std::byte* block);
bool encode_q5_0(const float* values, std::byte* block);
bool encode_q5_1(const float* values, std::byte* block);
bool encode_q8_0(const float* values, std::byte* block);
bool encode_q4_k(const float* values, std::byte* block);
bool encode_q5_k(const float* values, std::byte* block);
bool encode_q6_k(const float* values, std::byte* block);

}  // namespace rw::blocks
