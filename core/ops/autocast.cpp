#include "rewind/core/ops/autocast.h"

#include "rewind/core/base/error.h"
#include "rewind/core/ops/ops.h"

namespace rw {

Autocast::Autocast(DType dtype, bool enabled) : dtype_(dtype) {
  check<DTypeError>(is_float(dtype), "autocast", "needs f16, bf16 or f32, got {}", name(dtype));
  if (enabled) thread_state().autocasts.push_back(this);
}

Autocast::~Autocast() {
  std::erase(thread_state().autocasts, this);
}

Tensor Autocast::input(Tensor x) {
  if (thread_state().autocasts.empty() || !is_float(x.dtype())) return x;
  return cast(std::move(x), thread_state().autocasts.back()->dtype_);
}

}  // namespace rw
