// Keys and values of the tokens so far, for generating one after another.
#pragma once

#include <utility>

#include "../../core/tensor/tensor.h"

namespace rw {

// Memory for `longest` tokens of one attention layer, taken once: [N, heads, longest, dim] twice.
class KeyValueCache {
 public:
  // ShapeError for sizes that are not positive, DTypeError for dtypes that are no floats.
  KeyValueCache(int64_t batch, int64_t heads, int64_t longest, int64_t dim,
                DType dtype = DType::f32);

  // Writes k and v [N, heads, n, dim] behind what there is, and returns views of all: [N, heads,
  // length(), dim]. They are written over, so that a gradient would read something else:
  // AutogradError where gradients are recorded. ShapeError where they do not fit.
  std::pair<Tensor, Tensor> append(const Tensor& k, const Tensor& v);

  int64_t length() const { return length_; }         // tokens so far
  int64_t longest() const { return keys_.size(2); }  // that there is room for
  void clear() { length_ = 0; }                      // begins again, in the same memory

 private:
  Tensor keys_, values_;
  int64_t length_ = 0;
};

}  // namespace rw
