#include "core/tensor/overlap.h"

#include <algorithm>

namespace rw {

namespace {

// The axes with more than one element, the largest stride first.
struct Axis {
  int64_t stride, size;
};
std::vector<Axis> axes_of(const Tensor& t) {
  std::vector<Axis> axes;
  for (int i = 0; i < t.rank(); ++i)
    if (t.shape()[i] > 1) axes.push_back({t.strides()[i], t.shape()[i]});
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  return axes;
}

// The range that all axes but the outermost touch.
int64_t inner_extent(const std::vector<Axis>& axes) {
  int64_t extent = 1;
  for (size_t i = 1; i < axes.size(); ++i) extent += (axes[i].size - 1) * axes[i].stride;
  return extent;
}

bool meet(int64_t a, int64_t a_size, int64_t b, int64_t b_size) {
  return a < b + b_size && b < a + a_size;
}

// Whether both have the same stride and lie side by side within it, like columns of one matrix.
bool side_by_side(const Tensor& a, const Tensor& b) {
  const std::vector<Axis> of_a = axes_of(a), of_b = axes_of(b);
  if (of_a.empty() || of_b.empty() || of_a[0].stride != of_b[0].stride) return false;
  const int64_t step = of_a[0].stride, a_size = inner_extent(of_a), b_size = inner_extent(of_b);
  if (step == 0) return false;
  const int64_t a_at = a.impl().offset % step, b_at = b.impl().offset % step;
  return a_at + a_size <= step && b_at + b_size <= step && !meet(a_at, a_size, b_at, b_size);
}

bool same_view(const Tensor& a, const Tensor& b) {
  if (a.impl().offset != b.impl().offset) return false;
  if (a.is_contiguous() && b.is_contiguous()) return a.numel() == b.numel();
  return a.shape() == b.shape() && a.strides() == b.strides();
}

}  // namespace

bool overlaps_itself(const Tensor& t) {
  if (t.is_contiguous() || t.numel() == 0) return false;
  const std::vector<Axis> axes = axes_of(t);
  int64_t extent = 1;  // of the axes so far, from the smallest stride on
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (axis->stride < extent) return true;
    extent += (axis->size - 1) * axis->stride;
  }
  return false;
}

bool overlap_in_part(const Tensor& a, const Tensor& b) {
  if (a.impl().storage != b.impl().storage || same_view(a, b)) return false;
  if (a.numel() == 0 || b.numel() == 0) return false;
  return meet(a.impl().offset, extent(a), b.impl().offset, extent(b)) && !side_by_side(a, b);
}

}  // namespace rw
