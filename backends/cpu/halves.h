// 16-bit floats as f32 and back, for what computes in f32.
#pragma once

#include <cstdint>

#include "../../core/base/dtype.h"

namespace rw::cpu {

// Elements [0, count) of a float tensor that begins at `from`, as f32.
void to_floats(const std::byte* from, DType dtype, int64_t count, float* to);
void from_floats(const float* from, int64_t count, DType dtype, std::byte* to);

// The same on all threads.
void all_to_floats(const std::byte* from, DType dtype, int64_t count, float* to);

}  // namespace rw::cpu
