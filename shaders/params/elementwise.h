// Elementwise operations, fill, copy and random numbers.

// fill: y[i] = value, given as the bits of a float (f32, f16) or of an int (i32, u8). Flat.
struct FillParams {
  uint offset[1];
  uint n;
  uint bits;
};

// copy: y[...] = cast(x[...]). Casts from float to i32 or u8 truncate toward zero, and u8 keeps the
// low 8 bits.
//
// A Vulkan device runs one of these. Module `copy` {FLAT}: with 1, both tensors are dense, and a
// thread copies 8 elements. With 2, a thread copies 8 elements, which count as one in the last
// dimension: its size is divided by 8, and its strides, all other strides and the offsets are
// multiples of 8. With 0, a thread copies one element. Module copy_tiled: x has stride 1 in the
// dimension before the last one, y in the last one; threads.x = tiles of 32 by 32 of these two
// dimensions.
struct CopyParams {
  uint offset[2];
  uint n;
  uint rank;
  uint shape[REWIND_MAX_DIMS];
  uint x_stride[REWIND_MAX_DIMS];
  uint y_stride[REWIND_MAX_DIMS];
};

// unary: y[i] = op(x, a, b), y dense. variant {op, flat}.
struct UnaryParams {
  uint offset[2];
  uint n;
  float a;
  float b;
  uint rank;
  uint shape[REWIND_MAX_DIMS];
  uint x_stride[REWIND_MAX_DIMS];
};

// unary_grad: dx = op'(s) * dy, all dense; s is what the table's row asks for. variant {op}. Flat.
struct UnaryGradParams {
  uint offset[3];  // s, dy, dx
  uint n;
  float a;
  float b;
};

// binary: y = op(a, b), y dense. compare: the same with y u8. variant {op, mode}:
//   mode 0: strided, one element per thread; 1: a and b dense; 2: b repeats with a period of
//   `period` elements (at least 8); 3: b is one element. Modes 1 to 3 are flat.
struct BinaryParams {
  uint offset[3];
  uint n;
  uint period;
  uint rank;
  uint shape[REWIND_MAX_DIMS];
  uint a_stride[REWIND_MAX_DIMS];
  uint b_stride[REWIND_MAX_DIMS];
};

// where: y = c != 0 ? a : b, y dense, one element per thread.
struct WhereParams {
  uint offset[4];  // c, a, b, y
  uint n;
  uint rank;
  uint shape[REWIND_MAX_DIMS];
  uint c_stride[REWIND_MAX_DIMS];
  uint a_stride[REWIND_MAX_DIMS];
  uint b_stride[REWIND_MAX_DIMS];
};

// accumulate: y += a * x (y f32), dense. Flat.
struct AccumulateParams {
  uint offset[2];
  uint n;
  float a;
};

// dropout: y = u(i) < keep ? x / keep : 0, dense; u(i) = (word >> 8) * 2^-24 in [0, 1), word i % 4
// of Philox4x32-10 with key seed and block (counter + i / 4, 0, 0). Its own gradient. Flat.
struct DropoutParams {
  uint offset[2];
  uint n;
  float keep;
  uint seed_lo, seed_hi;
  uint counter_lo, counter_hi;
};

// random: the variant is 0 for uniform numbers in [a, b), 1 for normal ones with mean a and
// deviation b. It uses the same words as dropout. For normal numbers, words (w0, w1) and (w2, w3)
// of a block each give r cos(t) and r sin(t) with r = sqrt(-2 log(1 - u0)), t = 2 pi u1. Flat.
struct RandomParams {
  uint offset[1];
  uint n;
  float a, b;
  uint seed_lo, seed_hi;
  uint counter_lo, counter_hi;
};
