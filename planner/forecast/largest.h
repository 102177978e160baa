// The largest number of something that fits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

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
template <class Needs>
int64_t largest_within(const Needs& needs, uint64_t limit, int64_t guess = 1) {
  struct Point {
    int64_t n = 0;
    double bytes = 0;
  };
  Point before, last;         // the two that were asked for last; at first: nothing needs nothing
  int64_t low = 0, high = 0;  // fits; does not fit, 0: not known
  const auto wanted = static_cast<double>(limit);
  // Where the line through them meets the limit; far away where it does not.
  const auto meets = [&] {
    const double slope = (last.bytes - before.bytes) / static_cast<double>(last.n - before.n);
    const double far = 64.0 * static_cast<double>(last.n);
    const double n =
        static_cast<double>(last.n) + (slope > 0 ? (wanted - last.bytes) / slope : far);
    return static_cast<int64_t>(std::clamp(n, 0.0, far));
  };
  int64_t n = std::clamp<int64_t>(guess, 1, no_largest);
  for (int tries = 1;; ++tries) {
    const std::optional<uint64_t> bytes = needs(n);
    const bool fits = bytes && *bytes <= limit;
    (fits ? low : high) = n;
    before = std::exchange(last, {n, bytes ? static_cast<double>(*bytes) : 2 * wanted});
    if (low == no_largest || high - low == 1) return low;
    if (!high)
      n = std::clamp(meets() + 1, low + 1, no_largest);
    else
      n = std::clamp(tries > 8 ? low + (high - low) / 2 : meets() + (fits ? 1 : 0), low + 1,
                     high - 1);
  }
}

}  // namespace rw
