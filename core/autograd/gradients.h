// Gradients of any tensors with respect to any others.
#pragma once

#include <vector>

#include "../tensor/tensor.h"

namespace rw {

// The options of grad().
struct GradOptions {
  std::vector<Tensor> seeds = {};  // gradients of the ys, of their shapes; none: ones, of scalars
  bool retain = false;             // keep the records for another backward
  // The gradients are values of the tape, as results of ops are, so that a loss may depend on them;
  // what made them stays recorded. It implies `retain`.
  bool create_graph = false;
  bool allow_unused = false;  // an x that no y depends on has an undefined gradient
};

// Returns the gradients of sum_i seeds[i] * ys[i] with respect to the xs, which may be leaves (f32
// results) or results of ops that are still on the tape (results in their dtype). Only the records
// between them run. grad() of leaves is neither read nor changed; hooks on the way are called. It
// behaves like PyTorch's torch.autograd.grad.
//
// With `create_graph` the gradients can be differentiated, to any order, with the bits that they
// have without it (those of products and scans apart); seeds and what hooks return are
// differentiated, too. AutogradError names an op on the way whose gradient cannot be differentiated
// (attention, recurrent layers, losses of sequences; docs/from-pytorch.md). What is recorded here
// is part of no plan of recomputation, and no budget drops it.
//
// Without it there are no second derivatives, and none is left out silently. A gradient from here,
// from Tensor::grad() or in a hook is then marked, and so are the results of ops on it, just as the
// results of ops on a leaf require a gradient; backward() and grad() refuse a tensor that is
// marked. A gradient that is meant as a constant loses the mark by detach(), and wherever
// requires_grad() would be lost as well: under NoGrad, by copy_() into another tensor, by
// comparisons, and by set_requires_grad(), which makes a leaf; also by functions whose derivative
// is 0 everywhere, such as sign and round. Seeds may be marked.
//
// AutogradError if an x requires no gradient, or is not reached and `allow_unused` is false, and if
// a y depends on a marked gradient.
std::vector<Tensor> grad(const std::vector<Tensor>& ys, const std::vector<Tensor>& xs,
                         const GradOptions& options = {});

}  // namespace rw
