#include "planner/forecast/largest.h"

#include <algorithm>
#include <utility>

namespace rw {

int64_t largest_within(const std::function<std::optional<uint64_t>(int64_t)>& needs, uint64_t limit,
                       int64_t guess) {
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
