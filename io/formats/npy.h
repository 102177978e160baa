// NumPy's .npy files.
#pragma once

#include <filesystem>

#include "../../core/tensor/tensor.h"

namespace rw {

// Writes f32, f16, i32 or u8, and bf16 as f32, which holds each of its values: NumPy has no bf16.
// The order is row-major. The file is replaced as a whole; its folder must exist.
void save_npy(const std::filesystem::path& path, const Tensor& tensor);
// A new tensor on the default device: f2, f4 and u1 as they are, f8 as f32, bool as u8, and other
// integers as i32, which they must fit. Any order of bytes, by rows or columns (as np.save writes a
// transpose). Throws FileError for other dtypes: structured and complex ones, texts, objects.
Tensor load_npy(const std::filesystem::path& path);

}  // namespace rw
