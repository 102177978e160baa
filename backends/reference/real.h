// The type in which kernels of the reference backend compute floating-point elements, and its
// access to them.
#pragma once

#include <cstddef>
#include <limits>

#include "../../core/base/dtype.h"

namespace rw::reference {

#ifdef REWIND_REFERENCE_F64

// Tests compile the kernels a second time (tests/op_table/f64_backend.h): with a double behind
// every floating-point element, however few bits its tensor has, and with a witness of every
// access.
using Real = double;
double real_at(const std::byte* at, DType dtype);
void set_real_at(std::byte* at, DType dtype, double value);
void witness(const std::byte* at, size_t bytes, bool writes);

#else

using Real = float;
inline void witness(const std::byte*, size_t, bool) {}

#endif

constexpr Real nan = std::numeric_limits<Real>::quiet_NaN();

}  // namespace rw::reference
