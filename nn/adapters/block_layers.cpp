#include "nn/adapters/block_layers.h"

namespace rw {

BlockLinear::BlockLinear(BlockMatrix weight, Tensor bias)
    : weight_(std::move(weight)), bias_(std::move(bias)) {
  register_buffer("blocks", weight_.codes());
}

BlockEmbedding::BlockEmbedding(BlockMatrix weight, DType dtype)
    : weight_(std::move(weight)), dtype_(dtype) {
  register_buffer("blocks", weight_.codes());
}

}  // namespace rw
