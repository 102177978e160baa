// Matrices in the blocks of GGUF files, or in bitsandbytes' NF4, as frozen weights: they are never
// in memory as floats, but for a slab of rows at a time.
#pragma once

#include "../../core/blocks/block_type.h"
#include "../ops.h"

namespace rw {

// A matrix [rows, columns] as blocks of one type. A cheap handle, like its tensor.
class BlockMatrix {
 public:
  // codes u8 [rows, bytes of a row], of any strides; those of blocks::nf4 have further rows with
  // what the blocks share. ValueError for a type of two tensors; DTypeError; ShapeError unless rows
  // are whole blocks and there is one, and for rows of NF4 that no matrix has.
  BlockMatrix(Tensor codes, const BlockType& type);
  // The shape of the codes of such a matrix, of whole blocks.
  static Shape stored_shape(int64_t rows, int64_t columns, const BlockType& type);

  const Tensor& codes() const { return codes_; }    // as given to the constructor
  const BlockType& type() const { return *type_; }  // likewise
  int64_t rows() const { return rows_; }            // outputs of linear()
  int64_t columns() const { return columns_; }      // inputs of linear()

 private:
  Tensor codes_;
  const BlockType* type_;
  int64_t rows_, columns_;
};

//! op: linear_blocks   torch: none   autocast: low
// x [..., columns] @ weight^T + bias [rows] (may be undefined) -> [..., rows], in the dtype of x.
// The weight gets no gradient, so x is not kept for one. ShapeError, DTypeError.
Tensor linear(Tensor x, const BlockMatrix& weight, Tensor bias = {});
//! op: matmul_blocks   torch: none   autocast: low
// x [..., rows] @ weight -> [..., columns], in the dtype of x: the gradient of linear(). Likewise.
Tensor matmul(Tensor x, const BlockMatrix& weight);
//! op: embedding_blocks   torch: none   in: i32   order: 0
// A row of the table for each index (i32, of rank 5 at most) -> index.shape + [columns] of `dtype`.
// An index outside the table gives NaN. DTypeError, ShapeError; ValueError for NF4, of which one
// row alone says nothing.
Tensor embedding(const BlockMatrix& table, Tensor index, DType dtype = DType::f32);
//! op: dequantize   torch: none   in: none   order: 0
// The floats [rows, columns] for which the blocks stand. DTypeError unless `dtype` is float.
Tensor dequantize(const BlockMatrix& x, DType dtype = DType::f32);

namespace detail {
// y [m, rows] = x [m, columns] @ w^T and y [m, columns] = x [m, rows] @ w, for a dense y of x's
// dtype or, in the second, of f32. Nothing is recorded.
void multiply_blocks(const Tensor& x, const BlockMatrix& w, const Tensor& y);
void multiply_blocks_back(const Tensor& x, const BlockMatrix& w, const Tensor& y);
}  // namespace detail

}  // namespace rw
