// Mixed precision.
#pragma once

#include "rewind/core/tensor/tensor.h"

namespace rw {

// While alive, matmul, linear, conv2d, attention and tied_cross_entropy cast float inputs to
// `dtype` (per thread). Scopes may end in any order.
class Autocast {
 public:
  explicit Autocast(DType dtype, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  static Tensor input(Tensor x);  // x as such an op should see it

 private:
  DType dtype_;
};

}  // namespace rw
