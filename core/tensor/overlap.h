// Finds views that share elements: an op must write to one place only, and no other view may see a
// part of it.
#pragma once

#include "tensor.h"

namespace rw {

// Tells whether two elements of the view may be the same memory, as in those of expand() and
// unfold().
bool overlaps_itself(const Tensor& t);

// Tells whether a and b may share an element without being the same view.
bool overlap_in_part(const Tensor& a, const Tensor& b);

}  // namespace rw
