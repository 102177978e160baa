// Values in 8 bits, by blocks.

// The elements of a block, which are consecutive; the last block may have fewer.
#define QUANTIZE_BLOCK 128
#define QUANTIZE_LEVELS 127
#define QUANTIZE_ZERO 128              // the code of 0
#define QUANTIZE_LEAST 2.3509887e-38f  // the least step, twice the least normal number
// quantize_blocks: x in n codes, and a step for each block, which is a LEVELS-th of its largest |x|
// and at least LEAST. The code of x is ZERO for 0 and for denormal numbers of f32, and otherwise
// ZERO + k or ZERO - k for x above or below 0, where k = ceil(|x| / step) is from 1 to LEVELS. If
// an element of the block is not finite, its step is NaN, and all its codes are ZERO. One thread
// per 8 elements.
// dequantize_blocks: y = (k - 1/2) step with x's sign, the middle of what has this code, so it is
// at most half a step from x. It has x's sign, and is 0 where x is. NaN if the step is.
struct QuantizeBlocksParams {
  uint offset[3];  // x or y, codes, steps
  uint n;
};

// NF4: the elements of a block, the blocks that share a factor, and the values of the codes, which
// are quantiles of a normal distribution (Dettmers et al. 2023, appendix E), as bitsandbytes rounds
// them.
#define NF4_BLOCK 64
#define NF4_GROUP 256
#define NF4_VALUES                                                                                 \
  -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, \
      -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f,                    \
      0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f,      \
      0.5626170039176941f, 0.7229568362236023f, 1.0f

// The most rows of x that multiply_blocks takes.
#define BLOCK_ROWS 8
// Matrices in blocks (core/blocks/block_type.h): `rows` rows of `cols` elements from row `first`
// on, which are whole blocks; a row begins row_bytes after the one before it, and what blocks of
// NF4 share (core/blocks/nf4.h) begins `tail` bytes behind the first row of all. The variant is
// {type}, its place in block_types(). decode_blocks: y [rows, cols] has the floats for which codes
// stand. One thread per 8 elements. multiply_blocks: y [m, rows] = x [m, cols] @ codes^T, with m at
// most BLOCK_ROWS but on devices that take any (core/backend/features.h), x and y dense. One
// workgroup per row of codes.
struct BlockMatrixParams {
  uint offset[3];  // codes, y; or x, codes, y
  uint rows, cols, row_bytes, m, first, tail;
};
