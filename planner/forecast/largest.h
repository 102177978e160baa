// The largest number of something that fits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

namespace rw {

// The largest n >= 1 for which `fits(n)` holds, or 0 if it does not hold for 1. If a number fits,
// smaller ones must, too. It gallops away from `guess`, which it tries first, then halves the
// interval.
template <class Fits>
int64_t largest(const Fits& fits, int64_t guess = 1) {
  guess = std::max<int64_t>(1, guess);
  int64_t low = 0, high = 0, stride = std::max<int64_t>(1, guess / 64);
  for (int64_t at = guess; high == 0; stride *= 2) {
    if (fits(at)) {
      low = at;
      at += stride;
    } else {
      high = at;
    }
  }
  // low fits (or is 0), high does not.
  for (; low == 0 && high > 1; stride *= 2) {
    const int64_t at = std::max<int64_t>(1, high - stride);
    (fits(at) ? low : high) = at;
  }
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

constexpr int64_t no_largest = int64_t{1} << 40;

// The largest n >= 1 with needs(n) <= limit, 0 if there is none, no_largest if they all seem to
// fit; needs(n) (nothing means more than any limit) must not fall with n. A need that grows about
// in proportion, like memory with a batch, takes a handful of calls: the next n is where the line
// through two known points meets the limit.
int64_t largest_within(const std::function<std::optional<uint64_t>(int64_t)>& needs, uint64_t limit,
                       int64_t guess = 1);

}  // namespace rw
