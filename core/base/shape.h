// Shapes and strides, in elements. Rank is at most 6.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "error.h"

namespace rw {

// A fixed-capacity list of up to 6 sizes; used for shapes and for strides.
class Shape {
 public:
  static constexpr int max_rank = 6;  // ShapeError beyond

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) {
    check<ShapeError>(dims.size() <= max_rank, "shape", "rank must be at most {}, got {}", max_rank,
                      dims.size());
    bool is_negative = false;
    for (const int64_t d : dims) {
      dims_[rank_++] = d;
      is_negative |= d < 0;
    }
    check<ShapeError>(!is_negative, "shape", "sizes must not be negative, got {}", *this);
  }

  int rank() const { return rank_; }  // number of axes

  // Size along `axis`, in [0, rank()); no check.
  int64_t operator[](int axis) const { return dims_[axis]; }
  int64_t& operator[](int axis) { return dims_[axis]; }
  // Size along `axis`; negative axes count from the end. Throws ShapeError.
  int64_t at(int axis) const;

  // Returns the product of the sizes, 1 for rank 0; ShapeError as in check_sizes().
  int64_t numel() const {
    int64_t others = 1;  // the product of the sizes that are not 0
    bool fits = true, is_empty = false;
    for (const int64_t d : *this) {
      fits &= d >= 0 && !__builtin_mul_overflow(others, d > 0 ? d : 1, &others);
      is_empty |= d == 0;
    }
    if (!fits) [[unlikely]]
      refuse_sizes();
    return is_empty ? 0 : others;
  }

  const int64_t* begin() const { return dims_.data(); }        // the first size
  const int64_t* end() const { return dims_.data() + rank_; }  // after the last
  // Appends a last axis; ShapeError beyond max_rank, or if it is negative.
  void push_back(int64_t dim) {
    check<ShapeError>(rank_ < max_rank, "shape", "rank must be at most {}, got one more than {}",
                      max_rank, *this);
    check<ShapeError>(dim >= 0, "shape", "sizes must not be negative, got {}", dim);
    dims_[rank_++] = dim;
  }
  void resize(int rank) { rank_ = rank; }      // keeps the first axes; there must be as many
  bool operator==(const Shape& other) const {  // compares rank and all sizes
    bool is_same = rank_ == other.rank_;
    for (int i = 0; i < rank_ && is_same; ++i) is_same = dims_[i] == other.dims_[i];
    return is_same;
  }

  std::string str() const;  // "(2, 3)"

 private:
  void refuse_sizes() const;  // throws the error of check_sizes()

  std::array<int64_t, max_rank> dims_{};
  int rank_ = 0;
};

// By axis: elements from one index to the next.
using Strides = Shape;

// Throws a ShapeError with `op` unless no size is negative and the bytes of the sizes that are not
// 0 fit in 63 bits: then no stride, offset or count of bytes can overflow.
void check_sizes(OpName op, const Shape& shape, size_t element_bytes = 1);
// Returns one past the last element that a view touches; `offset` if it is empty. Nothing if a
// stride or the offset is negative or 64 bits are too few.
std::optional<int64_t> last_element(const Shape& shape, const Strides& strides, int64_t offset);

Strides dense_strides(const Shape& shape);  // row-major
// Tells whether the strides are row-major; those of axes of size 1 do not matter.
inline bool is_dense(const Shape& shape, const Strides& strides) {
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

// Returns 0 <= result < rank. `op` names the caller in the ShapeError.
int normalize_axis(int axis, int rank, OpName op);
// Normalises all of them, in rising order; ShapeError if one occurs twice.
std::vector<int> normalize_axes(std::span<const int> axes, int rank, OpName op);

// Broadcasts as NumPy does. Throws ShapeError naming `op` and both shapes.
Shape broadcast(const Shape& a, const Shape& b, OpName op);
// Returns strides that read `shape` as if it were `target` (0 along broadcast axes).
Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target);

// Returns strides that read the elements of (shape, strides) in order as `target`, or nothing if
// that takes a copy. Both have the same number of elements.
std::optional<Strides> reshape_strides(const Shape& shape, const Strides& strides,
                                       const Shape& target);

// Merges neighbouring axes that all of `strides` step through evenly and drops axes of size 1, so
// that kernels see the smallest rank. Changes `shape` and every element of `strides`.
void collapse(Shape& shape, std::span<Strides> strides);

}  // namespace rw
