// Conversion of 16-bit floats to f32 and back, for kernels that compute in f32.
#pragma once

#include <cstdint>

#include "../../core/base/dtype.h"

namespace rw::cpu {

// Converts elements [0, count) of a float tensor that begins at `from` to f32, or back.
void to_floats(const std::byte* from, DType dtype, int64_t count, float* to);
void from_floats(const float* from, int64_t count, DType dtype, std::byte* to);

// The same on all threads.
void all_to_floats(const std::byte* from, DType dtype, int64_t count, float* to);

}  // namespace rw::cpu
