// Classes of calls that are alike enough to run in one way, by which `tune` stores its choices.
#pragma once

#include <string>
#include <string_view>

#include "../../../core/backend/backend.h"

namespace rw::vulkan {

bool is_product(std::string_view kernel);  // matmul, conv2d, conv2d_dgrad, conv2d_wgrad

// The class of a matmul, conv2d, conv2d_dgrad or conv2d_wgrad: the dtypes of factors and result,
// how they lie in memory (transposed or not, and in words of how many elements), and sizes to the
// nearest power of two, as in "gemm f16-f16 nt a8 b8 c8 m2048 n1024 k256 x1". A convolution that is
// a product of matrices has that product's class. Empty for calls that do nothing and for other
// kernels.
std::string class_of(const KernelCall& call);

}  // namespace rw::vulkan
