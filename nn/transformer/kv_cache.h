// The keys and values of the tokens so far, for generating one token after another.
#pragma once

#include <utility>

#include "../../core/tensor/tensor.h"

namespace rw {

// Memory for `longest` tokens of one attention layer, allocated once: [N, heads, longest, dim]
// twice.
class KeyValueCache {
 public:
  // ShapeError for sizes that are not positive, DTypeError for dtypes that are not floats.
  KeyValueCache(int64_t batch, int64_t heads, int64_t longest, int64_t dim,
                DType dtype = DType::f32);

  // Appends k and v [N, heads, n, dim], and returns views of all: [N, heads, length(), dim]. The
  // memory is overwritten, so a gradient would read other values: AutogradError if gradients are
  // recorded. ShapeError if they do not fit.
  std::pair<Tensor, Tensor> append(const Tensor& k, const Tensor& v);

  int64_t length() const { return length_; }         // tokens so far
  int64_t longest() const { return keys_.size(2); }  // that there is room for
  void clear() { length_ = 0; }                      // begins again, in the same memory

 private:
  Tensor keys_, values_;
  int64_t length_ = 0;
};

}  // namespace rw
