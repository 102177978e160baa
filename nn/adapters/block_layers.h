// Layers whose weights stay in the blocks of GGUF files. They are frozen: gradients flow through
// them, to what lies before. They stand in the place of Linear and Embedding (substitute()).
#pragma once

#include "../../ops/network/block_matrix.h"
#include "../module.h"

namespace rw {

//! torch: none
// [..., in] -> [..., out], by a weight [out, in] in blocks, which is the buffer "blocks", and the
// bias of the layer in whose place it stands (may be undefined), which stays that layer's.
class BlockLinear : public Module {
 public:
  explicit BlockLinear(BlockMatrix weight, Tensor bias = {});
  Tensor forward(Tensor x) override { return linear(std::move(x), weight_, bias_); }

  const BlockMatrix& weight() const { return weight_; }  // dequantize() makes floats of it

 private:
  BlockMatrix weight_;
  Tensor bias_;
};

//! torch: none
// A row of a table [rows, dimension] in blocks, the buffer "blocks", for each index: i32 [...] ->
// [..., dimension] of `dtype`.
class BlockEmbedding : public Module {
 public:
  BlockEmbedding(BlockMatrix weight, DType dtype);
  Tensor forward(Tensor index) override { return embedding(weight_, std::move(index), dtype_); }

  const BlockMatrix& weight() const { return weight_; }  // the table
  DType dtype() const { return dtype_; }                 // of what forward() returns

 private:
  BlockMatrix weight_;
  DType dtype_;
};

}  // namespace rw
