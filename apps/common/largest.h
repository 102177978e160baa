// The largest number of something that fits.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rw {

// The largest n >= 1 for which `fits(n)` holds, 0 if it does not hold for 1. Whoever fits, smaller
// ones do too. Gallops away from `guess`, which is tried first, then halves the interval.
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

}  // namespace rw
