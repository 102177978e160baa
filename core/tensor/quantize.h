// Values in 8 bits, in the blocks that blocks::steps describes. Block-wise quantisation is that of
// Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"; Chen et al. 2021, "ActNN",
// use it for saved activations.
#pragma once

#include "tensor.h"

namespace rw {

// The codes of a float tensor, u8 of its shape, and the steps of their blocks, f32 [ceil(numel /
// 128)].
struct QuantizedBlocks {
  Tensor codes, steps;
};

// Returns x in 8 bits. The step of a block is 1/127 of its largest |x|, and a code stands for the
// values above 0 (or below) up to a whole multiple of the step; so zeros and signs are exact, and
// every value is at most half a step from what dequantize_blocks() returns (f16 and bf16 are
// rounded after that). A block with an element that is NaN or infinite comes back as NaN. Denormal
// numbers of f32 count as zeros. DTypeError unless x is float.
QuantizedBlocks quantize_blocks(const Tensor& x);
// Returns the values that the codes stand for, of their shape. DTypeError unless `dtype` is float,
// the codes are u8 and the steps f32; ShapeError unless there is a step for each block.
Tensor dequantize_blocks(const QuantizedBlocks& x, DType dtype);

// Keeps the contents of a storage of floats in 8 bits, in the device's memory, and gives its own
// memory back. The first kernel that needs them has them unpacked, each at most half a step from
// what it was; to saved values, that is no write. Does nothing if the memory is away already.
void keep_in_8_bits(const std::shared_ptr<Storage>& storage);

}  // namespace rw
