// A feature of devices (DeviceInfo::features).
#pragma once

namespace rw {

// Products with matrices in blocks are quick for any number of rows of x: multiply_blocks takes
// more than BLOCK_ROWS there, and no slab of the matrix becomes floats in the device's memory.
inline constexpr const char* block_products = "products with blocks";

}  // namespace rw
