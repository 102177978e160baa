#include "core/base/shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/checked.h"
#include "core/base/error.h"

namespace rw {

int64_t Shape::at(int axis) const {
  return dims_[normalize_axis(axis, rank_, "shape")];
}

void Shape::refuse_sizes() const {
  check_sizes("shape", *this);
}

void check_sizes(OpName op, const Shape& shape, size_t element_bytes) {
  auto bytes = static_cast<int64_t>(element_bytes);
  bool fits = true;
  for (const int64_t d : shape) {
    check<ShapeError>(d >= 0, op, "sizes must not be negative, got {}", shape);
    if (d > 0) fits &= !__builtin_mul_overflow(bytes, d, &bytes);
  }
  check<ShapeError>(
      fits, op,
      "the sizes that are not 0 must give a number of bytes below 2^63, got {} of {} bytes each",
      shape, element_bytes);
}

std::optional<int64_t> last_element(const Shape& shape, const Strides& strides, int64_t offset) {
  std::optional<int64_t> last = offset;
  bool is_empty = false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 0) is_empty = true;
    if (strides[i] < 0) return {};
    const auto step = checked_mul(std::max<int64_t>(shape[i] - 1, 0), strides[i]);
    last = last && step ? checked_add(*last, *step) : std::nullopt;
  }
  if (offset < 0 || is_empty) return offset < 0 ? std::nullopt : std::optional(offset);
  return checked_add(last, 1);
}

std::string Shape::str() const {
  return fmt::format("({})", fmt::join(begin(), end(), ", "));
}

Strides dense_strides(const Shape& shape) {
  Strides strides = shape;
  int64_t step = 1;
  bool fits = true;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    fits &= shape[i] >= 0 && !__builtin_mul_overflow(step, shape[i], &step);
  }
  if (!fits) [[unlikely]]
    check_sizes("shape", shape);
  return strides;
}

int normalize_axis(int axis, int rank, OpName op) {
  check<ShapeError>(axis >= -rank && axis < rank, op, "axis must be in [{}, {}), got {}", -rank,
                    rank, axis);
  return axis < 0 ? axis + rank : axis;
}

std::vector<int> normalize_axes(std::span<const int> axes, int rank, OpName op) {
  std::vector<int> result;
  for (int axis : axes) result.push_back(normalize_axis(axis, rank, op));
  std::sort(result.begin(), result.end());
  check<ShapeError>(std::adjacent_find(result.begin(), result.end()) == result.end(), op,
                    "axes must differ, got {}", fmt::join(axes, ", "));
  return result;
}

Shape broadcast(const Shape& a, const Shape& b, OpName op) {
  if (a == b) return a;
  const int rank = std::max(a.rank(), b.rank());
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a[ia], db = ib < 0 ? 1 : b[ib];
    check<ShapeError>(da == db || da == 1 || db == 1, op,
                      "shapes must broadcast together, got {} and {}", a, b);
    out.push_back(da == 1 ? db : da);
  }
  return out;
}

Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target) {
  Strides out;
  const int lead = target.rank() - shape.rank();
  for (int i = 0; i < target.rank(); ++i)
    out.push_back(i < lead || shape[i - lead] == 1 ? 0 : strides[i - lead]);
  return out;
}

std::optional<Strides> reshape_strides(const Shape& shape, const Strides& strides,
                                       const Shape& target) {
  if (shape.numel() == 0) return dense_strides(target);
  Shape runs = shape;  // maximal evenly stepped runs, innermost last
  Strides steps = strides;
  collapse(runs, {&steps, 1});
  Strides out = target;
  int run = runs.rank() - 1;
  int64_t left = run >= 0 ? runs[run] : 1, step = run >= 0 ? steps[run] : 1;
  for (int i = target.rank() - 1; i >= 0; --i) {
    while (left == 1 && run > 0 && target[i] != 1) {
      --run;
      left = runs[run];
      step = steps[run];
    }
    if (left % target[i] != 0) return std::nullopt;
    out[i] = step;
    step *= target[i];
    left /= target[i];
  }
  return out;
}

void collapse(Shape& shape, std::span<Strides> strides) {
  int last = -1;  // of the axes that stay, which move to the front
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    bool joins = last >= 0;
    for (size_t k = 0; k < strides.size() && joins; ++k)
      joins = strides[k][last] == strides[k][i] * shape[i];
    const int64_t size = joins ? shape[last] * shape[i] : shape[i];
    if (!joins) ++last;
    shape[last] = size;
    for (Strides& s : strides) s[last] = s[i];
  }
  shape.resize(last + 1);
  for (Strides& s : strides) s.resize(last + 1);
}

}  // namespace rw
