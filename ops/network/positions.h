// Tells attention the positions of tokens.
#pragma once

#include "../../core/tensor/tensor.h"

namespace rw {

// The options of rotary().
struct RotaryOptions {
  int64_t offset = 0;  // position of the first row: keys before it are in a cache
  // The position of each row, i32 [B, S], in place of offset + s: several texts lie in a row, or
  // texts begin elsewhere.
  Tensor positions = {};
  float theta = 10000;  // pair i turns by position * theta^(-2 i / D) radians
  // Any other schedule: f32 [D / 2], pair i turns by position * frequencies[i] radians. A model
  // keeps this tensor, as otherwise each call makes the one of theta anew.
  Tensor frequencies = {};
  float scale = 1;  // of the result, as YaRN has it (Peng et al. 2023)
  // Whether pairs are elements 2 i and 2 i + 1, as in the paper, or i and i + D / 2, as in Hugging
  // Face's Llama.
  bool interleaved = false;
};

//! op: rotary   torch: none
// Rotary positions (Su et al. 2021, "RoFormer"): rotates the pairs of each row s of x [B, H, S, D]
// by its position, offset + s, so that products of queries and keys depend only on their distance.
// Views welcome; f32 or f16 (DTypeError) -> the same shape, dense. D is even, and positions fit 32
// bits: ShapeError, ValueError. The gradient rotates back, and saves frequencies and positions
// alone; the former get none (AutogradError).
Tensor rotary(Tensor x, const RotaryOptions& options = {});

//! op: alibi_slopes   torch: none   in: none   order: 0
// The slopes of this many heads, f32 [heads], for AttentionOptions::alibi (Press et al. 2022,
// "Train Short, Test Long"): the powers of 2^(-8 / heads). If heads is not a power of two: those of
// the next lower one, and every other one of the next higher. ValueError unless heads > 0.
Tensor alibi_slopes(int64_t heads);

}  // namespace rw
