// Products without a record.
#pragma once

#include "../core/autograd/record.h"

namespace rw::detail {

// a [..., m, k] @ b [..., k, n] of `dtype`, unrecorded, added to `added` [..., m, n] if that is
// given.
Tensor gemm(const Tensor& a, const Tensor& b, DType dtype, const Tensor& added = {});

// c [..., m, n] = a @ b as above, or c += a @ b. The rows of c are dense, and may lie apart.
void gemm_into(const Tensor& a, const Tensor& b, const Tensor& c, bool adds = false);

// Returns the values that the vjp of a product of two inputs reads: each factor, for the other
// one's gradient.
Saves product_saves(const std::any&, uint32_t needs);
// DTypeError unless both are f32 or both f16.
void check_same_float(const Tensor& a, const Tensor& b, const char* op);

}  // namespace rw::detail
