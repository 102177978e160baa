// Kernels are written for f16; if a call has bf16 instead, they run for that.
#pragma once

#include <algorithm>
#include <span>

#include "backend.h"

namespace rw {

// Tells whether a binding has this dtype.
inline bool has_dtype(std::span<const Binding> bindings, DType dtype) {
  return std::any_of(bindings.begin(), bindings.end(),
                     [dtype](const Binding& b) { return b.dtype == dtype; });
}

// Returns the dtype for which a kernel must be written, given the bindings of the call: f16 for
// bf16, but not together with f16, since a kernel sees 16-bit floats of one kind only.
inline DType written_for(std::span<const Binding> bindings, DType dtype) {
  return dtype == DType::bf16 && !has_dtype(bindings, DType::f16) ? DType::f16 : dtype;
}

}  // namespace rw
