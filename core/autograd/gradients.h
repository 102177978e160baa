// Gradients of any tensors with respect to any others.
#pragma once

#include <vector>

#include "rewind/core/tensor/tensor.h"

namespace rw {

// What grad() is asked for.
struct GradOptions {
  std::vector<Tensor> seeds = {};  // gradients of the ys, of their shapes; none: ones, of scalars
  bool retain = false;             // keep the records for another backward
  bool allow_unused = false;       // an x that no y depends on has an undefined gradient
};

// The gradients of sum_i seeds[i] * ys[i] with respect to the xs, which may be leaves (f32 results)
// or results of ops that are still on the tape (results in their dtype). Only what lies between is
// run. grad() of leaves is neither read nor changed; hooks on the way are called. As PyTorch's
// torch.autograd.grad; gradients are no functions of the xs themselves (no second derivatives).
// AutogradError where an x requires no gradient, or is not reached and `allow_unused` is false.
std::vector<Tensor> grad(const std::vector<Tensor>& ys, const std::vector<Tensor>& xs,
                         const GradOptions& options = {});

}  // namespace rw
