// Features that some devices have (DeviceInfo::features).
#pragma once

namespace rw {

// Products with matrices in blocks are quick for any number of rows of x: multiply_blocks takes
// more than BLOCK_ROWS there, and no slab of the matrix becomes floats in the device's memory.
inline constexpr const char* block_products = "products with blocks";

// attention_grad computes the gradients of queries, keys and values together, and so the weights
// once, not once for the queries and once for the rest.
inline constexpr const char* joint_attention_grad = "joint gradients of attention";

}  // namespace rw
