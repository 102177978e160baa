// The largest number of something that fits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace rw {

// All numbers seem to fit.
constexpr int64_t no_largest = int64_t{1} << 40;

// The largest n >= 1 with needs(n) <= limit, 0 if there is none, no_largest if they all seem to
// fit; needs(n) (nothing means more than any limit) must not fall with n. `guess` is tried first. A
// need that grows about in proportion, like memory with a batch, takes a handful of calls: the next
// n is where the line through two known points meets the limit.
//   largest_within([&](int64_t n) { return std::optional(plan([&] { step(n); }).memory.peak); },
//                  parse_bytes("8GiB"));
int64_t largest_within(const std::function<std::optional<uint64_t>(int64_t)>& needs, uint64_t limit,
                       int64_t guess = 1);

}  // namespace rw
