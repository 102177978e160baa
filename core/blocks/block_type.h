// Floats in blocks: neighbours that share scales, in fewer bits than a DType has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rw {

// A way to store floats in blocks. In files, a block is contiguous, and there are only whole ones.
// A type of two tensors has its codes in one and its scales in another; its last block may have
// fewer elements, as if zeros followed. A type with shared scales has them behind the last row of a
// matrix, as codes with a common map (nf4.h).
struct BlockType {
  std::string_view name;  // of a type of files, as ggml spells it: "Q4_K"
  uint32_t elements;      // of a block
  uint32_t scale_bytes;   // of what they share: scales and minima
  uint32_t code_bytes;    // of what is their own
  bool has_two_tensors;   // as above
  // Writes the floats that a whole block stands for. One of two tensors, or with shared scales, is
  // given as its codes with the scale, an f32, after them, here and in encode().
  void (*decode)(const std::byte* block, float* values);
  // Writes the block for so many floats. Returns false if no block stands for them: for infinite
  // ones and NaN, and where the scale is too large for its format. Null: only read, or encoded as
  // whole matrices.
  bool (*encode)(const float* values, std::byte* block);
  bool has_shared_scales = false;  // as above

  uint32_t bytes() const { return scale_bytes + code_bytes; }  // of a block
  // Returns the blocks, and below the bytes, of n elements.
  uint64_t block_count(uint64_t n) const { return (n + elements - 1) / elements; }
  uint64_t bytes_of(uint64_t n) const {
    return n * code_bytes / elements + block_count(n) * scale_bytes;
  }
};

namespace blocks {

// GGUF's (ggml-common.h and ggml-quants.c of https://github.com/ggml-org/ggml). Blocks of 32 have
// a scale of 16 bits and codes of 4 (q4_0, q4_1), 5 (q5_0, q5_1) or 8 bits (q8_0); those that end
// with 1 have a minimum, too. Blocks of 256 have further scales of sub-blocks, and codes of 4
// (q4_k), 5 (q5_k) or 6 bits (q6_k). The blocks of q8_0 have the bits of quantize_row_q8_0_ref().
extern const BlockType q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k;

// The 4-bit NormalFloats of QLoRA (Dettmers et al. 2023) with double quantisation, as bitsandbytes
// stores them: a block of 64 has a code of 8 bits for its largest size, and codes of 4 bits.
extern const BlockType nf4;

// The moments of 8-bit optimizers, in two tensors: a code is one of 256 parts of the largest
// size in its block of 256 (dynamic_map), which is the scale, an f32. Unsigned, what is above 0
// stays above it.
extern const BlockType dynamic, dynamic_unsigned;

// Activations that are kept in 8 bits, in two tensors (quantize_blocks): a code counts the steps of
// an f32 in its block of 128. A block with an infinite element or NaN is NaN.
extern const BlockType steps;

}  // namespace blocks

// All of the above.
std::span<const BlockType* const> block_types();

// Dynamic quantisation, of numbers in [-1, 1] or [0, 1] (Dettmers et al. 2022, "8-bit Optimizers
// via Block-wise Quantization", section 2.2): the leading zero bits of a code are a decimal
// exponent of 0 to -6, the bits after them a fraction, linear in [0.1, 1]; without a sign there is
// one more bit of fraction. The values of all codes in rising order, 0 and 1 among them; -1 is not.
std::array<float, 256> dynamic_map(bool is_signed);
// The bounds of rounding: [i] is the mean of codes i and i + 1. The nearest code of x is the number
// of bounds below x, so a tie goes to the lower code. The last bound is infinite.
std::array<float, 256> dynamic_bounds(const std::array<float, 256>& map);

}  // namespace rw
