// The range of a tensor's values, by which mixed precision is judged.
#pragma once

#include <cstdint>
#include <span>

#include "../../core/tensor/tensor.h"

namespace rw {

// The contents of a tensor.
struct ValueRange {
  // The number of elements of each kind. Denormal means below the least normal value of the given
  // type, and not 0.
  uint64_t nans = 0, infinities = 0, normals = 0, zeros = 0, denormals = 0;
  float largest = 0, least = 0;  // finite |x|, and |x| that is not 0; both 0: there are none

  uint64_t elements() const { return nans + infinities + normals + denormals + zeros; }  // all
  uint64_t not_finite() const { return nans + infinities; }  // NaN or infinite
};

// The least positive normal value of a float type: smaller ones lose digits, then are 0.
float least_normal(DType dtype);

// Queues counting the elements of x, of a float type and not empty, into a row: i32 [RANGE_SIZE],
// to which it adds. Values below `least_normal` count as denormal; if `is_scaled`, below that times
// the loss scale, which is in the values. `control` is an optimizer's, for the loss scale.
void count_range(const Tensor& x, const Tensor& row, float least_normal, bool is_scaled,
                 const Tensor& control);
ValueRange range_of_row(std::span<const int32_t> row);  // as it was read
float range_largest(int32_t word);                      // of RANGE_LARGEST
float range_least(int32_t word);                        // of RANGE_LEAST

}  // namespace rw
